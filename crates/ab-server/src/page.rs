//! The web page of `serve`, rendered on the server: sessions, one session, the inbox, a form for a new task.
//!
//! Every page works without JavaScript. `assets/page.js` only keeps an open page current. Text of agents and
//! repositories is always text: maud escapes it, and the content security policy forbids inline scripts and styles.

mod diff;
mod events;
mod feed;
mod inbox;
mod layout;
mod problem;
mod session;
mod task_form;

pub(crate) use feed::feed;
pub(crate) use inbox::inbox;
pub(crate) use layout::Chrome;
pub(crate) use problem::problem;
pub(crate) use session::{SessionView, session};
pub(crate) use task_form::{TaskForm, task_form};

/// The style sheet of every page.
pub(crate) const STYLE: &str = include_str!("../assets/page.css");

/// The script of every page.
pub(crate) const SCRIPT: &str = include_str!("../assets/page.js");

/// Sent with every page: nothing is loaded from elsewhere, nothing inline runs, no other site may frame it.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
