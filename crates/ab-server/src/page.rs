//! The web page of `serve`, rendered on the server: sessions, one session, the inbox, a form for a new task.
//!
//! Every page works without JavaScript. `assets/page.js` keeps an open page current: it fetches the page again when the
//! event stream says that something happened, and puts the parts marked with `data-live` in place. So rows are made here
//! only. Text of agents and repositories is always text: maud escapes it, and the content security policy forbids inline
//! scripts and styles.

mod diff;
mod feed;
mod icon;
mod inbox;
mod layout;
mod problem;
mod rows;
mod session;
mod task_form;
mod text;
mod time;

pub(crate) use feed::{FeedView, feed};
pub(crate) use inbox::{Asked, inbox};
pub(crate) use layout::Chrome;
pub(crate) use problem::problem;
pub(crate) use session::{Changes, SessionView, session};
pub(crate) use task_form::{FormOffers, TaskForm, task_form};

/// The style sheet of every page.
pub(crate) const STYLE: &str = include_str!("../assets/page.css");

/// The script of every page.
pub(crate) const SCRIPT: &str = include_str!("../assets/page.js");

/// The icon of every page.
pub(crate) const ICON: &str = include_str!("../assets/icon.svg");

/// Sent with every page: nothing is loaded from elsewhere, nothing inline runs, no other site may frame it.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
