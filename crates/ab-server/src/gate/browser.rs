//! Sessions of browsers on the web page. A one-time link sets a cookie that is valid for one host
//! name only.
//!
//! Browsers send cookies to all ports of a host, and an agent may start a server on another port.
//! The host name of the link is random, so such a server does not receive the cookie.
//!
//! A cookie contains its expiry time and a random number, and is signed with a key and the server's
//! token. The server stores no list of cookies, so a browser stays logged in when the server
//! restarts with the same key and token.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use axum::http::HeaderMap;
use axum::http::header::COOKIE;

use super::token::{AccessToken, random_text};

const COOKIE_NAME: &str = "agent-backend";
/// How long a link is valid.
const TICKET_LIFE: Duration = Duration::from_secs(5 * 60);
/// How long a cookie is valid.
pub(crate) const COOKIE_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum number of unused links. If there are more, the oldest is dropped.
const MOST_TICKETS: usize = 64;
/// Number of characters of the random part of the host name.
const HOST_LENGTH: usize = 16;

/// The key that signs the cookies of browsers. The key is a secret, because anyone with the key and
/// the token's digest can make valid cookies.
#[derive(Clone)]
pub struct CookieSigningKey(String);

impl CookieSigningKey {
    /// Uses this text as the key. It should contain 256 random bits.
    pub fn from_secret(text: &str) -> CookieSigningKey {
        CookieSigningKey(text.to_owned())
    }
}

impl fmt::Debug for CookieSigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrowserKey")
    }
}

/// The one-time links (tickets) and the cookies of one server.
#[derive(Debug)]
pub(crate) struct BrowserSessions {
    host: String,
    key: hmac::Key,
    tickets: Mutex<Vec<Ticket>>,
}

#[derive(Debug)]
struct Ticket {
    token: AccessToken,
    expires: Moment,
}

/// Seconds since 1970. Cookies outlive the process, so a monotonic clock cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time.as_secs()))
    }
}

impl BrowserSessions {
    /// Uses `key` to sign. Without `key`, uses a random key that is lost when this process ends.
    ///
    /// # Errors
    ///
    /// Fails if the system's random number generator fails.
    pub(crate) fn new(
        key: Option<&CookieSigningKey>,
        token: Option<&AccessToken>,
    ) -> io::Result<Self> {
        let text = match key {
            Some(CookieSigningKey(text)) => text.clone(),
            None => random_text()?,
        };
        let root = hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes());
        // The digest of the token is part of the key, so that changing the token logs every browser
        // out.
        let digest = token.map(AccessToken::digest).unwrap_or_default();
        let signed = |what: &str| hmac::sign(&root, &[what.as_bytes(), digest].concat());
        let mut name = hexadecimal(signed("host ").as_ref());
        name.truncate(HOST_LENGTH);
        let key = hmac::Key::new(hmac::HMAC_SHA256, signed("cookie ").as_ref());
        Ok(Self { host: format!("{name}.localhost"), key, tickets: Mutex::default() })
    }

    /// Makes a ticket for a one-time link. Returns the host name and the path of the link.
    pub(crate) fn issue(&self, now: Moment) -> io::Result<(&str, String)> {
        let ticket = random_text()?;
        let mut tickets = self.tickets();
        if tickets.len() >= MOST_TICKETS {
            tickets.remove(0);
        }
        tickets.push(Ticket { token: AccessToken::new(&ticket), expires: now.after(TICKET_LIFE) });
        Ok((&self.host, format!("/ui/login?ticket={ticket}")))
    }

    /// Whether `name` is the host name of the links.
    pub(crate) fn is_host(&self, name: &str) -> bool {
        self.host == name
    }

    /// Uses up a ticket. Returns the `Set-Cookie` header of the new session. `None` if the ticket
    /// is not valid.
    pub(crate) fn redeem(
        &self,
        host: &str,
        ticket: &str,
        now: Moment,
    ) -> io::Result<Option<String>> {
        if !self.is_host(host) {
            return Ok(None);
        }
        let mut tickets = self.tickets();
        // Compare with every ticket. Each comparison takes constant time.
        let fits = |known: &Ticket| known.token.is(ticket.as_bytes()) && now < known.expires;
        let Some(found) = tickets.iter().position(fits) else { return Ok(None) };
        tickets.remove(found);
        drop(tickets);
        let Moment(expires) = now.after(COOKIE_LIFE);
        let content = format!("{expires}.{}", random_text()?);
        let tag = hexadecimal(hmac::sign(&self.key, content.as_bytes()).as_ref());
        let life = COOKIE_LIFE.as_secs();
        Ok(Some(format!(
            "{COOKIE_NAME}={content}.{tag}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}"
        )))
    }

    /// Whether this server issued the cookie and the cookie has not expired.
    pub(crate) fn knows(&self, cookie: &str, now: Moment) -> bool {
        let Some((content, tag)) = cookie.rsplit_once('.') else { return false };
        let Some((expires, _)) = content.split_once('.') else { return false };
        let Some(tag) = bytes(tag) else { return false };
        let is_ours = hmac::verify(&self.key, content.as_bytes(), &tag).is_ok();
        is_ours && expires.parse().is_ok_and(|expires| now < Moment(expires))
    }

    fn tickets(&self) -> MutexGuard<'_, Vec<Ticket>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The web page's cookie in a request.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let pairs = digits?;
    let pair = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    };
    pairs.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn sessions(key: &str, token: &str) -> BrowserSessions {
        BrowserSessions::new(
            Some(&CookieSigningKey::from_secret(key)),
            Some(&AccessToken::new(token)),
        )
        .unwrap()
    }

    fn ticket(path: &str) -> &str {
        path.split_once('=').unwrap().1
    }

    fn value(set_cookie: &str) -> &str {
        let (pair, _) = set_cookie.split_once(';').unwrap();
        pair.split_once('=').unwrap().1
    }

    #[test]
    fn a_ticket_opens_one_session_under_its_host() {
        let (sessions, now) = (BrowserSessions::new(None, None).unwrap(), Moment::now());
        let (host, path) = sessions.issue(now).unwrap();
        assert!(host.ends_with(".localhost"), "{host}");
        assert_eq!(sessions.redeem("localhost", ticket(&path), now).unwrap(), None);
        assert_eq!(sessions.redeem(host, "wrong", now).unwrap(), None);
        let cookie = sessions.redeem(host, ticket(&path), now).unwrap().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict; "), "{cookie}");
        assert_eq!(sessions.redeem(host, ticket(&path), now).unwrap(), None);
        assert!(sessions.knows(value(&cookie), now));
        assert!(!sessions.knows(value(&cookie), now.after(COOKIE_LIFE)));
        assert!(!sessions.knows(ticket(&path), now));
        // Later links have the same host name, so that a browser stays logged in.
        assert_eq!(sessions.issue(now).unwrap().0, host);
        let other = BrowserSessions::new(None, None).unwrap();
        assert!(!other.knows(value(&cookie), now) && !other.is_host(host));
    }

    #[test]
    fn a_cookie_counts_after_a_restart_unless_key_or_token_changed() {
        let (before, now) = (sessions("key", "token"), Moment::now());
        let (host, path) = before.issue(now).unwrap();
        let cookie = before.redeem(host, ticket(&path), now).unwrap().unwrap();
        let cookie = value(&cookie);
        let again = sessions("key", "token");
        assert!(again.knows(cookie, now) && again.is_host(host));
        assert!(!sessions("key", "other").knows(cookie, now));
        assert!(!sessions("other", "token").knows(cookie, now));
        // Tickets do not survive a restart.
        assert_eq!(again.redeem(host, ticket(&path), now).unwrap(), None);
        let later = cookie.replacen(|c: char| c.is_ascii_digit(), "9", 1);
        let cut = &cookie[..cookie.len() - 2];
        for forged in ["", ".", "..", later.as_str(), cut, "9.9.", "9.9.zz", "9.9.é"] {
            assert!(!again.knows(forged, now), "{forged}");
        }
    }

    #[test]
    fn tickets_expire_and_are_bounded() {
        let (sessions, now) = (BrowserSessions::new(None, None).unwrap(), Moment::now());
        let (host, path) = sessions.issue(now).unwrap();
        let late = now.after(TICKET_LIFE);
        assert_eq!(sessions.redeem(host, ticket(&path), late).unwrap(), None);
        for _ in 0..2 * MOST_TICKETS {
            sessions.issue(now).unwrap();
        }
        assert_eq!(sessions.tickets().len(), MOST_TICKETS);
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
