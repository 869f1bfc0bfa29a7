//! Sessions of the web page: a one-time link sets a cookie that counts under one host name only.
//!
//! Browsers share cookies between all ports of a host, and a session's own server may listen on one
//! of them. The host name of the link is random and never reused, so such a server does not receive
//! the cookie.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::COOKIE;

use super::token::{Token, random_text};

const COOKIE_NAME: &str = "agent-backend";
/// How long a link can be opened.
const TICKET_LIFE: Duration = Duration::from_secs(5 * 60);
/// How long a cookie counts.
pub(crate) const COOKIE_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Links that wait to be opened. The oldest makes room.
const MOST_TICKETS: usize = 64;
/// Browsers that are logged in. The oldest makes room.
const MOST_SESSIONS: usize = 256;
/// Characters of the random part of the host name.
const HOST_LENGTH: usize = 16;

/// The links and cookies of one server.
#[derive(Debug, Default)]
pub(crate) struct BrowserSessions {
    /// Chosen with the first link.
    host: OnceLock<String>,
    secrets: Mutex<Secrets>,
}

#[derive(Debug, Default)]
struct Secrets {
    tickets: Vec<Secret>,
    sessions: Vec<Secret>,
}

#[derive(Debug)]
struct Secret {
    token: Token,
    expires: Instant,
}

impl BrowserSessions {
    /// Makes a ticket: the host name of the link, and its path.
    pub(crate) fn issue(&self, now: Instant) -> io::Result<(&str, String)> {
        let mut name = random_text()?;
        name.truncate(HOST_LENGTH);
        let host = self.host.get_or_init(|| format!("{name}.localhost"));
        let ticket = random_text()?;
        let expires = now + TICKET_LIFE;
        keep(&mut self.lock().tickets, MOST_TICKETS, &ticket, expires);
        Ok((host, format!("/ui/login?ticket={ticket}")))
    }

    /// Whether a host name is that of the links.
    pub(crate) fn is_host(&self, name: &str) -> bool {
        self.host.get().is_some_and(|host| host == name)
    }

    /// Spends a ticket. Returns the `Set-Cookie` header of the session that it opens.
    pub(crate) fn redeem(
        &self,
        host: &str,
        ticket: &str,
        now: Instant,
    ) -> io::Result<Option<String>> {
        if !self.is_host(host) {
            return Ok(None);
        }
        let secret = random_text()?;
        let mut secrets = self.lock();
        let Some(found) = position(&secrets.tickets, ticket.as_bytes(), now) else {
            return Ok(None);
        };
        secrets.tickets.remove(found);
        keep(&mut secrets.sessions, MOST_SESSIONS, &secret, now + COOKIE_LIFE);
        let life = COOKIE_LIFE.as_secs();
        Ok(Some(format!(
            "{COOKIE_NAME}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}"
        )))
    }

    /// Whether a cookie belongs to a session that has not expired.
    pub(crate) fn knows(&self, cookie: &str, now: Instant) -> bool {
        position(&self.lock().sessions, cookie.as_bytes(), now).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The page's cookie among those of a request.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

fn keep(secrets: &mut Vec<Secret>, most: usize, text: &str, expires: Instant) {
    if secrets.len() >= most {
        secrets.remove(0);
    }
    secrets.push(Secret { token: Token::new(text), expires });
}

/// Compares with every secret, each in constant time.
fn position(secrets: &[Secret], shown: &[u8], now: Instant) -> Option<usize> {
    let fits = |secret: &Secret| secret.token.is(shown) && now < secret.expires;
    secrets.iter().position(fits)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn ticket(path: &str) -> &str {
        path.split_once('=').unwrap().1
    }

    fn value(set_cookie: &str) -> &str {
        let (pair, _) = set_cookie.split_once(';').unwrap();
        pair.split_once('=').unwrap().1
    }

    #[test]
    fn a_ticket_opens_one_session_under_its_host() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let (host, path) = sessions.issue(now).unwrap();
        assert!(host.ends_with(".localhost"), "{host}");
        assert_eq!(sessions.redeem("localhost", ticket(&path), now).unwrap(), None);
        assert_eq!(sessions.redeem(host, "wrong", now).unwrap(), None);
        let cookie = sessions.redeem(host, ticket(&path), now).unwrap().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict; "), "{cookie}");
        assert_eq!(sessions.redeem(host, ticket(&path), now).unwrap(), None);
        assert!(sessions.knows(value(&cookie), now));
        assert!(!sessions.knows(value(&cookie), now + COOKIE_LIFE));
        assert!(!sessions.knows(ticket(&path), now));
        // Later links have the same host, so that a browser stays logged in.
        assert_eq!(sessions.issue(now).unwrap().0, host);
    }

    #[test]
    fn tickets_expire_and_are_bounded() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let (host, path) = sessions.issue(now).unwrap();
        assert_eq!(sessions.redeem(host, ticket(&path), now + TICKET_LIFE).unwrap(), None);
        for _ in 0..2 * MOST_TICKETS {
            sessions.issue(now).unwrap();
        }
        assert_eq!(sessions.lock().tickets.len(), MOST_TICKETS);
        assert_eq!(sessions.redeem(host, ticket(&path), now).unwrap(), None);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers), None);
        headers.append(COOKIE, HeaderValue::from_static("a=b; agent-backend-x=1"));
        assert_eq!(cookie(&headers), None);
        headers.append(COOKIE, HeaderValue::from_static("c=d; agent-backend=secret"));
        assert_eq!(cookie(&headers), Some("secret"));
    }
}
