//! The one-time link of the page, and the cookie that it sets.

use crate::caller::get;
use crate::control::{Script, Served, serve};

/// A guarded port with sessions, and the host name and path of a link to its page.
async fn linked() -> (Served, String, String) {
    let served = serve(Script::Silence).await;
    let link = served.ask("POST", "/api/v1/login-links", "").await.json();
    let text = |field: &str| link[field].as_str().unwrap().to_owned();
    let (host, path) = (text("host"), text("path"));
    (served, host, path)
}

#[tokio::test]
async fn a_link_logs_one_browser_in() {
    let (port, host, path) = linked().await;
    let got = get(port.address(), &path, &[("host", &host)]).await;
    assert_eq!(got.status, 200, "{got:?}");
    let cookie = got.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let again = get(port.address(), &path, &[("host", &host)]).await;
    assert_eq!((again.status, again.header("set-cookie")), (401, None));
    let pair = cookie.split(';').next().unwrap();
    let asked = async |host: &str, origin: Option<&str>| {
        let mut headers = vec![("host", host), ("cookie", pair)];
        headers.extend(origin.map(|origin| ("origin", origin)));
        get(port.address(), "/api/v1/openapi.json", &headers).await.status
    };
    assert_eq!(asked(&host, None).await, 200);
    assert_eq!(asked(&host, Some(&format!("http://{host}"))).await, 200);
    // The cookie counts under the name of the link only, and for its own pages.
    assert_eq!(asked("localhost", None).await, 401);
    assert_eq!(asked(&host, Some("http://evil.example")).await, 403);
}

#[tokio::test]
async fn a_link_works_under_its_own_name_only() {
    let (port, host, path) = linked().await;
    assert_eq!(get(port.address(), &path, &[]).await.status, 401);
    let wrong = get(port.address(), "/ui/login?ticket=wrong", &[("host", &host)]).await;
    assert_eq!(wrong.status, 401);
    assert_eq!(get(port.address(), &path, &[("host", &host)]).await.status, 200);
}
