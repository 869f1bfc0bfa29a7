//! Authentication: turns credentials into a [`Principal`].

use std::io;

use ab_api::SpaceId;
use ab_core::{Principal, PrincipalKind, Role};
use axum::http::header::{AUTHORIZATION, ORIGIN, UPGRADE};
use axum::http::{HeaderMap, Method, Uri};

use super::browser::{self, BrowserSessions, Moment};
use super::{Host, HttpAccessPolicy, Page, token};
use crate::access::Access;
use crate::problem::{Problem, ProblemKind};

/// The token that a request carries. A WebSocket upgrade may pass it in the query, because a page
/// cannot set headers for a WebSocket.
pub(crate) fn shown(uri: &Uri, headers: &HeaderMap) -> Option<Vec<u8>> {
    let by_query = if headers.contains_key(UPGRADE) {
        token::in_query(uri.query().unwrap_or_default())
    } else {
        None
    };
    let header = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    by_query.or_else(|| header.and_then(token::in_header).map(<[u8]>::to_vec))
}

/// Checks all credentials that callers can use.
#[derive(Debug)]
pub(crate) struct Identity {
    gate: HttpAccessPolicy,
    /// The sessions of browsers. If the system provided no random numbers, contains the error. In
    /// this case no browser can log in.
    browsers: io::Result<BrowserSessions>,
}

/// The result of checking a caller's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Known(Principal, Proof),
    /// The request has an invalid credential.
    Wrong,
    /// The request has no credential.
    Unknown,
}

/// How a caller was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Token,
    Cookie,
    /// No credentials are required, because the server has no token. It trusts every caller that
    /// passes the other checks.
    NotRequired,
}

impl Caller {
    pub(crate) fn principal(&self) -> Option<&Principal> {
        match self {
            Caller::Known(principal, _) => Some(principal),
            Caller::Wrong | Caller::Unknown => None,
        }
    }

    /// The agent of a session, authenticated by the session's token.
    pub(crate) fn agent(session: &str) -> Caller {
        Caller::Known(Principal::new(PrincipalKind::Agent, session), Proof::Token)
    }

    /// An agent that works in a space, authenticated by a token of the space.
    pub(crate) fn space_agent(space: SpaceId) -> Caller {
        Caller::Known(Principal::new(PrincipalKind::SpaceAgent, &space.to_string()), Proof::Token)
    }

    /// The caller that uses an API key. The id of the principal is the name of the key.
    pub(crate) fn api_key(name: &str) -> Caller {
        let principal = Principal::new(PrincipalKind::ApiKey, name).with_role(Role::Admin);
        Caller::Known(principal, Proof::Token)
    }

    /// Whether the caller may use routes that require the admin.
    pub(crate) fn is_admin(&self) -> bool {
        self.principal().is_some_and(|principal| principal.has_role(Role::Admin))
    }
}

impl Identity {
    pub(crate) fn new(gate: HttpAccessPolicy) -> Identity {
        let browsers = BrowserSessions::new(gate.cookie_signing_key.as_ref(), gate.token.as_ref());
        Identity { gate, browsers }
    }

    fn browsers(&self) -> io::Result<&BrowserSessions> {
        self.browsers.as_ref().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Makes a one-time link to the web page. Returns its host name and path.
    pub(crate) fn login_link(&self) -> io::Result<(&str, String)> {
        self.browsers()?.issue(Moment::now())
    }

    /// Uses up the ticket of a link that was opened under the host name `host`. Returns a
    /// `Set-Cookie` header, or `None` if the ticket is not valid.
    pub(crate) fn redeem(&self, host: &Host, ticket: &str) -> io::Result<Option<String>> {
        self.browsers()?.redeem(&host.name, ticket, Moment::now())
    }

    /// Whether callers need a token.
    pub(crate) fn is_token_required(&self) -> bool {
        self.gate.token.is_some()
    }

    /// Checks the credentials of people and programs. The tokens of agents and the API keys are not
    /// checked here, because they are in the store.
    pub(crate) fn caller(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        host: Option<&Host>,
    ) -> Caller {
        let shown = shown(uri, headers);
        let admin = |kind| Principal::new(kind, "admin").with_role(Role::Admin);
        let Some(token) = &self.gate.token else {
            return Caller::Known(admin(PrincipalKind::Process), Proof::NotRequired);
        };
        match shown {
            Some(shown) if token.is(&shown) => {
                Caller::Known(admin(PrincipalKind::ApiKey), Proof::Token)
            }
            Some(_) => Caller::Wrong,
            None => match host.and_then(|host| self.cookie(method, headers, host)) {
                Some(true) => Caller::Known(admin(PrincipalKind::Person), Proof::Cookie),
                Some(false) => Caller::Wrong,
                None => Caller::Unknown,
            },
        }
    }

    /// Whether the web page's cookie is valid. `None` if a cookie must be ignored. This is the case
    /// under another host name, from another origin, and for a method that changes something if
    /// there is no Origin header.
    fn cookie(&self, method: &Method, headers: &HeaderMap, host: &Host) -> Option<bool> {
        let browsers = self.browsers.as_ref().ok().filter(|known| known.is_host(&host.name))?;
        match headers.get(ORIGIN) {
            Some(_) if self.gate.page(host, headers).ok() == Some(Page::Own) => {}
            None if *method == Method::GET || *method == Method::HEAD => {}
            Some(_) | None => return None,
        }
        Some(browsers.knows(browser::cookie(headers)?, Moment::now()))
    }

    /// Checks Host and Origin. A preflight request may use any host name, because it has no
    /// credentials. A caller with the token may also use any host name, because no foreign page
    /// knows the token.
    pub(crate) fn page_of(
        &self,
        caller: Option<&Caller>,
        host: &Host,
        headers: &HeaderMap,
    ) -> Result<Page, Problem> {
        super::said_once(headers)?;
        match caller {
            None | Some(Caller::Known(_, Proof::Token)) => {}
            Some(_) if self.browsers().is_ok_and(|known| known.is_host(&host.name)) => {}
            Some(_) => self.gate.known_host(host)?,
        }
        self.gate.page(host, headers)
    }

    /// Whether the caller may use a route with this access. `agent` is the agent to which the object in the path
    /// belongs.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        access: Access,
        agent: Option<&Principal>,
    ) -> Result<(), Problem> {
        if access == Access::Public || caller.is_admin() {
            return Ok(());
        }
        let Some(principal) = caller.principal() else { return Err(Problem::unauthorized()) };
        let kind = match access {
            Access::Public | Access::Admin => None,
            Access::SessionAgent => Some(PrincipalKind::Agent),
            Access::SpaceAgent => Some(PrincipalKind::SpaceAgent),
        };
        if kind == Some(principal.kind()) && agent == Some(principal) {
            return Ok(());
        }
        let detail = match principal.kind() {
            PrincipalKind::SpaceAgent => {
                "this token opens only the runs, files and tools of its own space, and decides nothing"
            }
            _ => "this token opens only the MCP endpoint of its own session",
        };
        Err(Problem::new(ProblemKind::Forbidden, detail))
    }
}
