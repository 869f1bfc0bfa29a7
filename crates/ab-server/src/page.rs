//! The web page of `serve`, rendered on the server: the list of sessions, a single session, the
//! inbox of approvals, and a form for a new task.
//!
//! Every page works without JavaScript. `assets/page.js` keeps an open page up to date. When the
//! event stream reports a change, the script fetches the page again and replaces the parts that are
//! marked with `data-live`. Rows are therefore rendered only on the server. Text from agents and
//! repositories is never treated as markup: maud escapes it, and the content security policy
//! forbids inline scripts and styles.

mod diff;
mod feed;
mod icon;
mod inbox;
mod layout;
mod problem;
mod queue;
mod rows;
mod session;
mod task_form;
mod text;
mod time;

pub(crate) use feed::{FeedGroup, FeedView, feed};
pub(crate) use inbox::{Asked, Asker, inbox};
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

/// The content security policy of every page: nothing is loaded from other sites, inline scripts do
/// not run, and no other site may embed the page in a frame.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
