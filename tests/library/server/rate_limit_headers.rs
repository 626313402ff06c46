//! Response headers with the state of the rate limit.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use attache::auth::CallerLimits;
use serde_json::json;

use crate::harness::{Answer, Echo, Running, WIRE_FORMATS, start_with};

async fn limited(change: impl FnOnce(&mut CallerLimits)) -> Running {
    let mut limits = CallerLimits::default();
    limits.limit_loopback = true;
    change(&mut limits);
    start_with(Echo, |server| server.caller_limits(limits)).await
}

fn unix_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Seed 2, section "Rate limiting": `X-RateLimit-Reset: 1698662400`.
#[tokio::test]
async fn seed_2_48_reset_is_an_epoch_and_ietf_headers_have_seconds() {
    // The bucket refills once in 100 s, so that no call of this test can refill it.
    let running = limited(|limits| {
        limits.calls_per_second = NonZeroU32::new(1);
        limits.burst = NonZeroU32::new(100).unwrap();
    })
    .await;
    for format in WIRE_FORMATS {
        let before = unix_seconds();
        let message = format.message("hi", json!({}));
        let send = format.ask("SendMessage", json!({"message": message}));
        let answer = running.ask(&send).await;
        let after = unix_seconds();
        let reset: i64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
        let remaining: i64 = number(&answer, "x-ratelimit-remaining");
        assert_eq!(number(&answer, "x-ratelimit-limit"), 100);
        // One second per call that has been used.
        let used = 100 - remaining;
        assert!(
            (before + 1..=after + used).contains(&reset),
            "{reset} not in {before}..={after} + {used}"
        );
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some("\"calls\";q=100;w=100")
        );
        let status = answer.header("ratelimit").unwrap();
        let seconds = parameter(status, "t");
        assert!(status.starts_with("\"calls\";"), "{status}");
        assert_eq!(parameter(status, "r"), remaining);
        assert!((1..=used).contains(&seconds), "{status}");
        assert!(
            (reset - after..=reset - before).contains(&seconds),
            "{status}"
        );
    }
}

#[tokio::test]
async fn seed_2_48_a_refused_call_names_the_limit_and_the_time() {
    let running = limited(|limits| {
        limits.calls_per_second = NonZeroU32::new(1);
        limits.burst = NonZeroU32::new(1).unwrap();
    })
    .await;
    let ask = WIRE_FORMATS[0].ask("ListTasks", json!({}));
    let deadline = Instant::now() + Duration::from_secs(30);
    let refused = loop {
        let answer = running.ask(&ask).await;
        if answer.status == 429 {
            break answer;
        }
        assert!(Instant::now() < deadline, "no call was refused");
    };
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"calls\";q=1;w=1")
    );
    assert_eq!(refused.header("ratelimit"), Some("\"calls\";r=0;t=1"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let reset = number(&refused, "x-ratelimit-reset");
    assert!((unix_seconds() - 30..=unix_seconds() + 1).contains(&reset));
}

#[tokio::test]
async fn seed_2_48_the_byte_limit_has_a_policy_of_its_own() {
    let running = limited(|limits| limits.bytes_per_minute = NonZeroU32::new(600)).await;
    let ask = WIRE_FORMATS[0].ask("GetTask", json!({"id": "x".repeat(300)}));
    assert_eq!(running.ask(&ask).await.status, 200);
    let refused = running.ask(&ask).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"bytes\";q=600;qu=\"content-bytes\";w=60")
    );
    let status = refused.header("ratelimit").unwrap();
    assert!(status.starts_with("\"bytes\";r=0;t="), "{status}");
}

fn number(answer: &Answer, name: &str) -> i64 {
    answer.header(name).expect(name).parse().unwrap()
}

fn parameter(value: &str, name: &str) -> i64 {
    let mut parameters = value.split(';').filter_map(|one| one.split_once('='));
    let (_, number) = parameters.find(|(key, _)| *key == name).expect(name);
    number.parse().unwrap()
}
