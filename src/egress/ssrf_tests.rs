//! SSRF tests (S15 to S21, S24, S25 to S27, S29): hostile URL spellings, DNS rebinding, redirects, limits and the allow list.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_util::task::TaskTracker;

use super::file_fetcher::FileFetcher;
use super::guarded_client::{ExchangeLimits, GuardedClient, SendError};
use super::policy::{AllowedTarget, BlockReason, EgressPolicy};
use super::resolver::LookupError;
use super::ssrf_guard::Network;
use super::target::TargetUrl;

const CAPS: ExchangeLimits = ExchangeLimits {
    time: Duration::from_secs(10),
    bytes: 1024,
};

/// URLs that lead to this machine or a private network, are ambiguous, or have an unsupported form.
const HOSTILE_URLS: &[&str] = &[
    // Loopback and "this host", in decimal, octal and hexadecimal forms.
    "http://127.0.0.1/",
    "https://127.0.0.1:8443/x",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0x7f.1/",
    "http://0X7F.0x0.0x0.0x1/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://0177.0.0.01/",
    "http://127.0.0.01/",
    "http://127.0.0.1./",
    "http://127.0.0.1../",
    "http://0/",
    "http://0.0.0.0/",
    "http://00.0.0.0/",
    "http://0.1.2.3/",
    "http://%31%32%37.0.0.1/",
    "http://127%2e0%2e0%2e1/",
    "http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/",
    "http://127\u{3002}0\u{3002}0\u{3002}1/",
    "http://\u{2460}\u{2461}\u{2466}.0.0.1/",
    // The same in IPv6.
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:7f00:0001]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[::1%25lo]/",
    "http://[::1%lo]/",
    "http://[fe80::1%25eth0]/",
    "http://::1/",
    "http://[::1/",
    "http://[::1]x/",
    "http://[::1]8080/",
    // Private and special ranges.
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://012.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://0xac.0x10.0.1/",
    "http://192.168.0.1/",
    "http://192.168.257/",
    "http://3232235521/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xA9FEA9FE/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://192.0.0.8/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.19.255.255/",
    "http://198.51.100.7/",
    "http://203.0.113.7/",
    "http://192.88.99.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250:1900/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fc00::1]/",
    "http://[fd12:3456::1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[2001:db8::1]/",
    "http://[2001:2::1]/",
    "http://[2001:10::1]/",
    "http://[3fff::1]/",
    // Names that resolve to private addresses, to too many, or not at all.
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://inside.example/",
    "http://half.example/",
    "http://nowhere.example/",
    "http://many.example/",
    // URLs that two parsers read as different hosts.
    "http://user@public.example/",
    "http://user:pass@public.example/",
    "http://public.example@127.0.0.1/",
    "http://public.example:80@127.0.0.1/",
    "http://127.0.0.1\\@public.example/",
    "http://public.example\\.evil/",
    "http:\\\\public.example/",
    "http://public.example#@127.0.0.1/",
    "http://public.example\t/",
    "http://public.example\r\nHost: x/",
    "http://pub\u{0}lic.example/",
    " http://public.example/",
    "http://public.example /",
    "http://p\u{fc}blic.example/",
    "http://\u{440}ublic.example/",
    "http://public\u{ad}.example/",
    "http://-public.example/",
    "http://public..example/",
    "http://.public.example/",
    "http://public.example.123/",
    "http://public.example.0x10/",
    // Ports.
    "http://public.example:0/",
    "http://public.example:/",
    "http://public.example:+80/",
    "http://public.example:80:80/",
    "http://public.example:65536/",
    "http://public.example:099999/",
    "http://public.example:22/",
    "http://public.example:25/",
    "http://public.example:6379/",
    "http://public.example:6667/",
    "http://public.example:11211/",
    // Schemes.
    "",
    "//public.example/",
    "/etc/passwd",
    "public.example",
    "http:/public.example/",
    "http:public.example",
    "http:///public.example",
    "http://",
    "https://?x",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://public.example/",
    "ftp://public.example/",
    "data:text/plain,x",
    "unix:///run/docker.sock",
    "ws://public.example/",
    "javascript:alert(1)",
    "jar:http://public.example!/",
];

/// Scripted DNS and a log of dialed addresses. Each lookup of a name returns the next of its answers; the last repeats.
#[derive(Default, Clone)]
struct FakeNetwork {
    names: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    dialed: Arc<Mutex<Vec<SocketAddr>>>,
    answer: &'static str,
    tasks: TaskTracker,
}

impl FakeNetwork {
    fn new(answer: &'static str) -> Self {
        let network = Self {
            answer,
            ..Self::default()
        };
        network.add_name("public.example", &[&["93.184.215.14"]]);
        network.add_name("inside.example", &[&["10.0.0.7"]]);
        network.add_name("half.example", &[&["93.184.215.14", "169.254.169.254"]]);
        network.add_name("localhost", &[&["127.0.0.1", "::1"]]);
        network.add_name("many.example", &[&["93.184.215.14"; 100]]);
        network
    }

    fn add_name(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers
            .iter()
            .map(|answer| answer.iter().map(|text| text.parse().unwrap()).collect());
        self.names
            .lock()
            .unwrap()
            .insert(name.to_owned(), answers.collect());
    }

    fn dialed(&self) -> Vec<String> {
        self.dialed
            .lock()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn client(&self, policy: EgressPolicy) -> GuardedClient {
        GuardedClient::new(policy, 2, self.clone())
    }
}

impl Network for FakeNetwork {
    type Stream = DuplexStream;

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let mut names = self.names.lock().unwrap();
        let answers = names
            .get_mut(name)
            .ok_or_else(|| LookupError::Failed(io::ErrorKind::NotFound.into()))?;
        Ok(if answers.len() > 1 {
            answers.remove(0)
        } else {
            answers[0].clone()
        })
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<DuplexStream> {
        self.dialed.lock().unwrap().push(address);
        let (client_side, mut server_side) = duplex(1 << 16);
        let answer = self.answer;
        self.tasks.spawn(async move {
            let mut request = vec![0; 4096];
            let _ = server_side.read(&mut request).await;
            if answer == "silence" {
                std::future::pending::<()>().await;
            }
            let _ = server_side.write_all(answer.as_bytes()).await;
            if answer.contains("endless") {
                while server_side.write_all(&[b'x'; 4096]).await.is_ok() {}
            }
        });
        Ok(client_side)
    }
}

fn plain_http() -> EgressPolicy {
    EgressPolicy {
        plain_http: true,
        ..EgressPolicy::default()
    }
}

fn get(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn s15_s16_s19_s21_no_spelling_reaches_a_private_address() {
    assert!(HOSTILE_URLS.len() >= 80);
    let network = FakeNetwork::new(OK);
    let client = network.client(plain_http());
    for url in HOSTILE_URLS {
        assert!(client.check(url).await.is_err(), "{url:?} passed the check");
        // Some are not even valid in a request.
        let Ok(request) = Request::get(*url).body(Bytes::new()) else {
            continue;
        };
        let _ = client.send(request, CAPS).await;
        // A parser that drops a fragment may still reach a public address.
        let private = network
            .dialed()
            .into_iter()
            .find(|address| !address.starts_with("93.184.215.14:"));
        assert_eq!(private, None, "{url:?} was dialed");
    }
}

#[tokio::test(start_paused = true)]
async fn public_targets_are_reached() {
    let network = FakeNetwork::new(OK);
    let client = network.client(plain_http());
    for (url, address) in [
        ("http://public.example/hook?x=1", "93.184.215.14:80"),
        ("http://PUBLIC.example:8080", "93.184.215.14:8080"),
        ("http://8.8.8.8/", "8.8.8.8:80"),
        ("http://[2606:2800:21f::1]:8080/", "[2606:2800:21f::1]:8080"),
        ("http://[::ffff:8.8.8.8]/", "[::ffff:8.8.8.8]:80"),
    ] {
        assert_eq!(client.check(url).await, Ok(()), "{url}");
        assert_eq!(
            client.send(get(url), CAPS).await.unwrap().status,
            204,
            "{url}"
        );
        assert_eq!(network.dialed().last().unwrap(), address);
    }
}

#[tokio::test(start_paused = true)]
async fn s17_one_private_address_blocks_the_host() {
    let network = FakeNetwork::new(OK);
    let refused = network
        .client(plain_http())
        .send(get("http://half.example/"), CAPS)
        .await
        .unwrap_err();
    assert_eq!(refused, SendError::Blocked(BlockReason::Address));
    assert_eq!(network.dialed(), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn s18_dns_rebinding_is_blocked() {
    let network = FakeNetwork::new(OK);
    let answers: &[&[&str]] = &[&["93.184.215.14"], &["127.0.0.1"], &["93.184.215.15"]];
    network.add_name("rebind.example", answers);
    let client = network.client(plain_http());
    assert_eq!(client.check("http://rebind.example/").await, Ok(()));
    let refused = client
        .send(get("http://rebind.example/"), CAPS)
        .await
        .unwrap_err();
    assert_eq!(refused, SendError::Blocked(BlockReason::Address));
    client
        .send(get("http://rebind.example/"), CAPS)
        .await
        .unwrap();
    assert_eq!(
        network.dialed(),
        ["93.184.215.15:80"],
        "only the checked address is dialed"
    );
}

#[tokio::test(start_paused = true)]
async fn s20_redirects_are_not_followed() {
    for to in [
        "http://127.0.0.1/",
        "http://public.example/2",
        "https://public.example/",
        "//inside.example/",
    ] {
        for status in [301, 302, 303, 307, 308] {
            let answer =
                format!("HTTP/1.1 {status} Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            let network = FakeNetwork::new(String::leak(answer));
            let answer = network
                .client(plain_http())
                .send(get("http://public.example/"), CAPS)
                .await
                .unwrap();
            assert_eq!(answer.status, status);
            assert_eq!(network.dialed(), ["93.184.215.14:80"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s25_endless_and_silent_responses_end() {
    let endless = FakeNetwork::new("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nendless");
    assert_eq!(
        endless
            .client(plain_http())
            .send(get("http://public.example/"), CAPS)
            .await
            .unwrap()
            .status,
        200
    );
    let silent = FakeNetwork::new("silence");
    let late = silent
        .client(plain_http())
        .send(get("http://public.example/"), CAPS)
        .await
        .unwrap_err();
    assert_eq!(late, SendError::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn s26_concurrent_exchanges_per_host_are_limited() {
    let client = FakeNetwork::new(OK).client(plain_http());
    let url = "http://public.example/a";
    let one = client.acquire_slot(url).await.unwrap();
    let same_host = "http://PUBLIC.example:81/b";
    let two = client.acquire_slot(same_host).await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_secs(1), client.acquire_slot(url))
            .await
            .is_err()
    );
    drop(client.acquire_slot("http://other.example/").await.unwrap());
    drop(one);
    drop(client.acquire_slot(url).await.unwrap());
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn s27_allow_list_admits_private_targets() {
    let allow = |targets: &[&str]| {
        targets
            .iter()
            .map(|target| target.parse().unwrap())
            .collect::<Vec<AllowedTarget>>()
    };
    let inside = "http://inside.example:22/";
    let cases: &[(&[&str], &str, bool)] = &[
        (&["inside.example"], inside, true),
        (&["*.example"], inside, true),
        (&["10.0.0.0/8"], inside, true),
        (&["10.0.0.7"], "http://[::ffff:10.0.0.7]/", true),
        (&["10.0.0.8"], inside, false),
        (&["side.example", "*.inside.example"], inside, false),
        (&["10.0.0.0/8"], "http://half.example/", false),
        (&["169.254.169.254"], "http://half.example/", false),
        (&["inside.example"], "http://public.example/", false),
    ];
    for (targets, url, is_reached) in cases {
        let policy = EgressPolicy {
            allow: allow(targets),
            ..EgressPolicy::default()
        };
        assert_eq!(
            FakeNetwork::new(OK).client(policy).check(url).await.is_ok(),
            *is_reached,
            "{targets:?} {url}"
        );
    }
    let only = EgressPolicy {
        allow: allow(&["inside.example"]),
        allow_only: true,
        ..plain_http()
    };
    let client = FakeNetwork::new(OK).client(only);
    assert_eq!(client.check(inside).await, Ok(()));
    assert_eq!(
        client.check("http://public.example/").await,
        Err(BlockReason::Address.into())
    );
    for wrong in [
        "",
        "*",
        "*.",
        "http://x",
        "a b",
        "10.0.0.0/99",
        "x:80",
        "1.2.3",
    ] {
        assert!(wrong.parse::<AllowedTarget>().is_err(), "{wrong:?}");
    }
}

/// A webhook may be registered before its host exists. The delivery resolves the name and checks again.
#[tokio::test(start_paused = true)]
async fn s27_an_allowed_name_need_not_resolve_yet() {
    let policy = |targets: &[&str]| EgressPolicy {
        allow: targets.iter().map(|one| one.parse().unwrap()).collect(),
        ..EgressPolicy::default()
    };
    let url = "http://soon.example/";
    let network = FakeNetwork::new(OK);
    for targets in [&["soon.example"][..], &["*.example"]] {
        let client = network.client(policy(targets));
        assert_eq!(client.check(url).await, Ok(()), "{targets:?}");
        let sent = client.send(get(url), CAPS).await;
        assert_eq!(sent.unwrap_err(), SendError::ConnectionFailed);
    }
    for targets in [&["10.0.0.0/8"][..], &["other.example"], &[]] {
        let checked = network.client(policy(targets)).check(url).await;
        assert_eq!(checked, Err(BlockReason::Address.into()), "{targets:?}");
    }
    assert!(network.dialed().is_empty());
    network.add_name("soon.example", &[&["10.0.0.9"]]);
    let client = network.client(policy(&["soon.example"]));
    assert_eq!(client.send(get(url), CAPS).await.unwrap().status, 204);
    assert_eq!(network.dialed(), ["10.0.0.9:80"]);
}

#[tokio::test(start_paused = true)]
async fn s27_loopback_option_admits_loopback_only() {
    let policy = EgressPolicy {
        loopback: true,
        ..EgressPolicy::default()
    };
    let client = FakeNetwork::new(OK).client(policy);
    for url in [
        "http://127.0.0.1:1/",
        "http://localhost:8080/x",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
    ] {
        assert_eq!(client.check(url).await, Ok(()), "{url}");
    }
    for url in [
        "http://10.0.0.1/",
        "http://0.0.0.0/",
        "http://inside.example/",
        "http://public.example/",
        "http://127.1/",
    ] {
        assert!(client.check(url).await.is_err(), "{url}");
    }
}

#[test]
fn plain_http_needs_the_option() {
    let plain = TargetUrl::parse("http://x.example/").unwrap();
    let secure = TargetUrl::parse("https://x.example/").unwrap();
    let public = ["93.184.215.14".parse().unwrap()];
    assert!(EgressPolicy::default().check(&plain, &public).is_err());
    assert_eq!(EgressPolicy::default().check(&secure, &public), Ok(()));
    assert_eq!(plain_http().check(&plain, &public), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn s29_files_are_fetched_through_the_guard() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: Image/PNG; x=1\r\ncontent-length: 3\r\n\r\ncat";
    let network = FakeNetwork::new(answer);
    let files = FileFetcher::with_client(network.client(plain_http()));
    let file = files.get("http://public.example/cat").await.unwrap();
    assert_eq!(
        (file.media_type.as_deref(), &file.bytes[..]),
        (Some("image/png"), &b"cat"[..])
    );
    let only = |types: &[&'static str]| files.clone().media_types(types.to_vec());
    assert!(
        only(&["text/plain", "image/*"])
            .get("http://public.example/cat")
            .await
            .is_ok()
    );
    let kind = only(&["text/plain"])
        .get("http://public.example/cat")
        .await
        .unwrap_err()
        .kind();
    assert_eq!(kind, crate::model::ErrorKind::ContentTypeNotSupported);
    assert!(
        files
            .clone()
            .max_bytes(2)
            .get("http://public.example/cat")
            .await
            .is_err(),
        "S25"
    );
    let before = network.dialed().len();
    for url in HOSTILE_URLS {
        assert!(files.get(url).await.is_err(), "{url}");
    }
    assert_eq!(network.dialed().len(), before, "nothing was dialed");
}

#[tokio::test(start_paused = true)]
async fn s20_s25_file_redirects_are_checked_and_endless_files_end() {
    for (to, hops) in [
        ("http://127.0.0.1/", 1),
        ("//inside.example/", 1),
        ("/again", 4),
        ("file:///x", 1),
    ] {
        let answer = format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let network = FakeNetwork::new(String::leak(answer));
        let files = FileFetcher::with_client(network.client(plain_http()));
        assert!(files.get("http://public.example/").await.is_err(), "{to}");
        assert!(
            network
                .dialed()
                .iter()
                .all(|address| address == "93.184.215.14:80"),
            "{to}"
        );
        assert!(network.dialed().len() <= hops, "{to}");
    }
    let endless = FakeNetwork::new("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nendless");
    let files = FileFetcher::with_client(endless.client(plain_http())).max_bytes(1 << 16);
    assert!(files.get("http://public.example/").await.is_err());
    let silent = FileFetcher::with_client(FakeNetwork::new("silence").client(plain_http()));
    let late = silent.get("http://public.example/").await.unwrap_err();
    assert_eq!(late.kind(), crate::model::ErrorKind::DeadlineExceeded);
}
