//! Which callers may use a route. The code that adds the route declares the access, and the gate
//! enforces it.
//!
//! The declaration is stored in the route's description, so the published description and the check
//! cannot differ.

use std::collections::HashMap;

use axum::http::{Method, StatusCode};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::app::HttpApp;
use crate::problem::Rendering;

/// Which callers may use a route. A smaller value admits more callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Every caller that passes the Host and Origin checks.
    Public,
    /// The admin, and the agent of the session whose id is in the path parameter `id`.
    SessionAgent,
    /// The admin, and the agents of one space. The path parameter `id` names this space, or one of
    /// its runs.
    SpaceAgent,
    /// Callers with the admin's token, and browsers that are logged in as the admin.
    Admin,
}

impl Access {
    const ALL: [Access; 4] =
        [Access::Public, Access::SessionAgent, Access::SpaceAgent, Access::Admin];

    /// Declares the access of routes, and adds the gate's refusals to their descriptions.
    pub(crate) fn to(self, routes: UtoipaMethodRouter<HttpApp>) -> UtoipaMethodRouter<HttpApp> {
        let (schemas, mut paths, router) = routes;
        for (path, item) in &mut paths.paths {
            for (_, operation) in operations(item) {
                if let Some(operation) = operation {
                    operation.security = Some(self.requirements());
                    self.describe_refusals(path, operation);
                }
            }
        }
        (schemas, paths, router)
    }

    fn requirements(self) -> Vec<SecurityRequirement> {
        let scheme = |name: &str| SecurityRequirement::new(name, std::iter::empty::<String>());
        match self {
            Access::Public => vec![SecurityRequirement::default()],
            Access::SessionAgent => {
                vec![scheme("sessionAgent"), scheme("bearer"), scheme("apiKey")]
            }
            Access::SpaceAgent => {
                vec![scheme("spaceAgent"), scheme("bearer"), scheme("apiKey"), scheme("cookie")]
            }
            Access::Admin => vec![scheme("bearer"), scheme("apiKey"), scheme("cookie")],
        }
    }

    fn describe_refusals(self, path: &str, operation: &mut Operation) {
        let mut refusals = vec![
            (StatusCode::BAD_REQUEST, "The request or one of its headers is malformed"),
            (StatusCode::FORBIDDEN, "The Host, the Origin or the caller is not allowed"),
            (StatusCode::TOO_MANY_REQUESTS, "Too many wrong tokens: see Retry-After"),
        ];
        if self != Access::Public {
            refusals.push((StatusCode::UNAUTHORIZED, "The token is missing or wrong"));
        }
        let rendering = Rendering::of(path);
        for (status, description) in refusals {
            let schema = Ref::from_schema_name(rendering.schema_name());
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let response = ResponseBuilder::new()
                .description(description)
                .content(rendering.content_type(), content)
                .build();
            let responses = &mut operation.responses.responses;
            responses.entry(status.as_str().to_owned()).or_insert(RefOr::T(response));
        }
    }
}

/// The access of every route, by path template.
#[derive(Debug)]
pub(crate) struct AccessTable(HashMap<String, Vec<(Method, Access)>>);

impl AccessTable {
    /// Reads the declarations of [`Access::to`]. A route without a declaration requires the admin.
    pub(crate) fn new(description: &mut utoipa::openapi::OpenApi) -> AccessTable {
        let of_item = |item: &mut PathItem| {
            let declared = |operation: &Operation| {
                let mut all = Access::ALL.into_iter();
                all.find(|access| operation.security == Some(access.requirements()))
                    .unwrap_or(Access::Admin)
            };
            operations(item)
                .into_iter()
                .filter_map(|(method, operation)| Some((method, declared(operation.as_ref()?))))
                .collect()
        };
        let paths = description.paths.paths.iter_mut();
        AccessTable(paths.map(|(path, item)| (path.clone(), of_item(item))).collect())
    }

    /// The access of a route. If the route does not support the method, returns the access of its
    /// most open method. If no route matches, returns the access of the admin.
    pub(crate) fn of(&self, template: Option<&str>, method: &Method) -> Access {
        let Some(methods) = template.and_then(|template| self.0.get(template)) else {
            return Access::Admin;
        };
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let exact = methods.iter().find(|(known, _)| known == method);
        let least = || methods.iter().min_by_key(|(_, access)| *access);
        exact.or_else(least).map_or(Access::Admin, |(_, access)| *access)
    }
}

fn operations(item: &mut PathItem) -> [(Method, &mut Option<Operation>); 8] {
    [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
        (Method::OPTIONS, &mut item.options),
        (Method::HEAD, &mut item.head),
        (Method::PATCH, &mut item.patch),
        (Method::TRACE, &mut item.trace),
    ]
}
