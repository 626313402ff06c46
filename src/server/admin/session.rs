//! Sessions of browsers, and the one-time links that open them (S80).
//!
//! A session has two secrets: a cookie and a CSRF token, which the page sends in a header. A page of another port has the
//! cookie only. Both are kept as digests in memory, so a restart ends all sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::operator::Operator;
use super::secret_token::{TokenDigest, random_token};
use crate::rt::lock;

/// Validity of a link.
pub(super) const LINK_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of links that are neither used nor expired.
const MAX_LINKS: usize = 16;
/// A session ends when it is not used for this long.
const MAX_IDLE: Duration = Duration::from_secs(8 * 3600);
/// Maximum duration of a session.
pub(super) const MAX_SESSION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number of sessions. The one that was not used for the longest time ends for a new one.
const MAX_SESSIONS: usize = 64;

/// Open sessions and links.
#[derive(Default)]
pub(super) struct Sessions {
    sessions: Mutex<HashMap<TokenDigest, Session>>,
    links: Mutex<VecDeque<Link>>,
}

struct Session {
    csrf_token: TokenDigest,
    operator: Operator,
    opened: Instant,
    used: Instant,
}

impl Session {
    fn is_open(&self) -> bool {
        self.used.elapsed() < MAX_IDLE
            && self.opened.elapsed() < MAX_SESSION
            && !self.operator.lifetime().has_ended()
    }
}

struct Link {
    token: TokenDigest,
    created: Instant,
}

/// Secrets of a new session.
pub(super) struct SessionTokens {
    pub(super) cookie: String,
    pub(super) csrf_token: String,
}

/// Reason why a link cannot be created.
#[derive(Debug)]
pub(super) enum LinkError {
    /// There are [`MAX_LINKS`] open links.
    TooMany,
    Random(getrandom::Error),
}

impl Sessions {
    /// Creates a link and returns its token.
    ///
    /// # Errors
    /// There are too many open links, or no random source.
    pub(super) fn create_link(&self) -> Result<String, LinkError> {
        let mut links = lock(&self.links);
        links.retain(|link| link.created.elapsed() < LINK_LIFETIME);
        if links.len() >= MAX_LINKS {
            return Err(LinkError::TooMany);
        }
        let token = random_token().map_err(LinkError::Random)?;
        links.push_back(Link {
            token: TokenDigest::new(&token),
            created: Instant::now(),
        });
        Ok(token)
    }

    /// Consumes a link. Returns whether it was valid.
    pub(super) fn use_link(&self, token: &str) -> bool {
        let mut links = lock(&self.links);
        links.retain(|link| link.created.elapsed() < LINK_LIFETIME);
        let found = links.iter().position(|link| link.token.matches(token));
        found.and_then(|index| links.remove(index)).is_some()
    }

    /// Opens a session.
    ///
    /// # Errors
    /// There is no random source.
    pub(super) fn open(&self, operator: Operator) -> Result<SessionTokens, getrandom::Error> {
        let tokens = SessionTokens {
            cookie: random_token()?,
            csrf_token: random_token()?,
        };
        let now = Instant::now();
        let session = Session {
            csrf_token: TokenDigest::new(&tokens.csrf_token),
            operator,
            opened: now,
            used: now,
        };
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| session.is_open());
        if sessions.len() >= MAX_SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some(oldest) = oldest.map(|(cookie, _)| *cookie) {
                sessions.remove(&oldest);
            }
        }
        sessions.insert(TokenDigest::new(&tokens.cookie), session);
        Ok(tokens)
    }

    /// Returns the operator of a session that has both secrets, and marks it as used.
    pub(super) fn find(&self, cookie: &str, csrf_token: &str) -> Option<Operator> {
        let mut sessions = lock(&self.sessions);
        let session = sessions.get_mut(&TokenDigest::new(cookie))?;
        if !session.is_open() || !session.csrf_token.matches(csrf_token) {
            return None;
        }
        session.used = Instant::now();
        Some(session.operator.clone())
    }

    /// Ends a session.
    pub(super) fn close(&self, cookie: &str) {
        lock(&self.sessions).remove(&TokenDigest::new(cookie));
    }

    /// Ends all sessions of an operator.
    pub(super) fn close_all(&self, operator: &str) {
        lock(&self.sessions).retain(|_, session| *session.operator.name != *operator);
    }

    /// Counts the open sessions.
    pub(super) fn count(&self) -> usize {
        let sessions = lock(&self.sessions);
        sessions
            .values()
            .filter(|session| session.is_open())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ApiKeys;

    #[tokio::test(start_paused = true)]
    async fn s80_a_link_opens_one_session_within_60_s() {
        let sessions = Sessions::default();
        let first = sessions.create_link().unwrap();
        assert!(!sessions.use_link("guess"));
        assert!(sessions.use_link(&first));
        assert!(!sessions.use_link(&first), "used");
        let late = sessions.create_link().unwrap();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!sessions.use_link(&late), "expired");
    }

    #[tokio::test(start_paused = true)]
    async fn s80_open_links_are_bounded() {
        let sessions = Sessions::default();
        for _ in 0..MAX_LINKS {
            sessions.create_link().unwrap();
        }
        assert!(matches!(sessions.create_link(), Err(LinkError::TooMany)));
        tokio::time::advance(LINK_LIFETIME).await;
        sessions.create_link().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_needs_both_secrets_and_ends() {
        let sessions = Sessions::default();
        let tokens = sessions.open(Operator::link()).unwrap();
        let other = sessions.open(Operator::link()).unwrap();
        assert!(sessions.find(&tokens.cookie, &tokens.csrf_token).is_some());
        assert!(sessions.find(&tokens.cookie, &other.csrf_token).is_none());
        assert!(sessions.find(&tokens.cookie, "").is_none());
        tokio::time::advance(MAX_IDLE / 2).await;
        assert!(sessions.find(&tokens.cookie, &tokens.csrf_token).is_some());
        tokio::time::advance(MAX_IDLE / 2).await;
        assert!(sessions.find(&tokens.cookie, &tokens.csrf_token).is_some());
        assert!(
            sessions.find(&other.cookie, &other.csrf_token).is_none(),
            "idle"
        );
        for _ in 0..=(MAX_SESSION.as_secs() / (MAX_IDLE / 2).as_secs()) {
            tokio::time::advance(MAX_IDLE / 2).await;
            sessions.find(&tokens.cookie, &tokens.csrf_token);
        }
        assert!(sessions.find(&tokens.cookie, &tokens.csrf_token).is_none());
    }

    #[tokio::test]
    async fn s14_a_revoked_key_ends_its_sessions() {
        let sessions = Sessions::default();
        let keys = ApiKeys::new();
        let secret = keys.issue("ann", |identity| identity);
        let ann = keys.identify(secret.expose()).unwrap();
        let tokens = sessions.open(Operator::with_key(&ann)).unwrap();
        assert!(sessions.find(&tokens.cookie, &tokens.csrf_token).is_some());
        keys.replace([]);
        assert!(sessions.find(&tokens.cookie, &tokens.csrf_token).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded() {
        let sessions = Sessions::default();
        let first = sessions.open(Operator::link()).unwrap();
        let used = sessions.open(Operator::link()).unwrap();
        for _ in 2..=MAX_SESSIONS {
            tokio::time::advance(Duration::from_secs(1)).await;
            sessions.find(&used.cookie, &used.csrf_token);
            sessions.open(Operator::link()).unwrap();
        }
        assert_eq!(sessions.count(), MAX_SESSIONS);
        assert!(sessions.find(&first.cookie, &first.csrf_token).is_none());
        assert!(sessions.find(&used.cookie, &used.csrf_token).is_some());
    }
}
