//! Whoever shows one credential after the other is not heard for a while (S41).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::{Error, ErrorKind, Result};

/// So long a wrong credential is held against its address.
const WINDOW: Duration = Duration::from_secs(60);
/// So many addresses are remembered.
const ADDRESSES: usize = 10_000;

/// Who has guessed, and how often.
pub(super) struct Guesses {
    most: u32,
    wrong: Mutex<HashMap<IpAddr, Wrong>>,
}

/// What an address has shown since then.
struct Wrong {
    since: Instant,
    times: u32,
}

impl Guesses {
    /// So many a minute are looked at.
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            wrong: Mutex::default(),
        }
    }

    /// Whether an address is heard, before anything that it shows is looked at.
    ///
    /// # Errors
    /// Rate limited: it has guessed too often.
    pub(super) fn hear(&self, peer: IpAddr) -> Result<()> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        match wrong.get(&neighbours(peer)) {
            Some(Wrong { since, times }) if *times >= self.most && since.elapsed() < WINDOW => {
                Err(Error::new(ErrorKind::RateLimited)
                    .with_message(
                        "Too many requests: too many credentials from this address were not good",
                    )
                    .with_retry_after(WINDOW.saturating_sub(since.elapsed())))
            }
            _ => Ok(()),
        }
    }

    /// An address has shown something that is not good.
    pub(super) fn wrong(&self, peer: IpAddr) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() >= ADDRESSES {
            wrong.retain(|_, one| one.since.elapsed() < WINDOW);
        }
        if wrong.len() >= ADDRESSES {
            wrong.clear();
        }
        let now = Instant::now();
        let one = wrong.entry(neighbours(peer)).or_insert(Wrong {
            since: now,
            times: 0,
        });
        if one.since.elapsed() >= WINDOW {
            *one = Wrong {
                since: now,
                times: 0,
            };
        }
        one.times = one.times.saturating_add(1);
    }
}

/// Of IPv6 everybody has a whole network to come from.
fn neighbours(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s41_who_guesses_is_not_heard_until_the_minute_is_over() {
        let guesses = Guesses::new(2);
        let (guesser, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        guesses.wrong(guesser);
        assert!(guesses.hear(guesser).is_ok());
        tokio::time::advance(Duration::from_secs(20)).await;
        guesses.wrong(guesser);
        let refused = guesses.hear(guesser).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
        assert!(guesses.hear(other).is_ok());
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(guesses.hear(guesser).is_ok());
        guesses.wrong(guesser);
        assert!(guesses.hear(guesser).is_ok(), "a new minute begins anew");
    }

    #[test]
    fn s41_a_network_of_addresses_is_one_guesser() {
        let guesses = Guesses::new(1);
        guesses.wrong("2001:db8::1".parse().unwrap());
        assert!(guesses.hear("2001:db8::ffff:2".parse().unwrap()).is_err());
        assert!(guesses.hear("2001:db8:0:1::1".parse().unwrap()).is_ok());
        guesses.wrong("::ffff:192.0.2.1".parse().unwrap());
        assert!(guesses.hear("192.0.2.1".parse().unwrap()).is_err());
    }

    #[test]
    fn s41_not_more_addresses_are_remembered_than_there_is_room_for() {
        let guesses = Guesses::new(1);
        for number in 0..u32::try_from(ADDRESSES).unwrap() + 5 {
            guesses.wrong(IpAddr::from(number.to_be_bytes()));
        }
        assert!(guesses.wrong.lock().unwrap().len() <= ADDRESSES);
    }
}
