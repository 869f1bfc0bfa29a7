//! MCP servers that are configured for a directory.

use std::collections::BTreeMap;

use ab_api::McpServerConfig;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{CallerFiles, ConfigFile, ConfigProblems, EntryKind};
use crate::app::HttpApp;
use crate::extract::{JsonBody, QueryParams};
use crate::problem::{Problem, ProblemKind};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub(crate) struct McpConfigQuery {
    /// The directory, in the served root; required
    directory: Option<String>,
    /// The name of the server; required. `mcp_name` is the same
    #[serde(alias = "mcp_name")]
    mcp_name: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct McpEntriesQuery {
    /// The directory, in the served root; required
    directory: Option<String>,
}

/// All MCP servers of a directory
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct McpEntries {
    /// The servers by name
    entries: BTreeMap<String, McpServerConfig>,
}

/// Read an MCP server that is configured for a directory
#[utoipa::path(
    get,
    path = "/v1/config/mcp",
    tag = "config",
    params(McpConfigQuery),
    responses((status = OK, body = McpServerConfig), ConfigProblems)
)]
pub(crate) async fn read_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpConfigQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<McpServerConfig>, Problem> {
    let file = ConfigFile::find(&app, &files, EntryKind::Mcp, query.directory.as_deref()).await?;
    file.read(query.mcp_name.as_deref()).await.map(Json)
}

/// Store an MCP server in the configuration of a directory
#[utoipa::path(
    put,
    path = "/v1/config/mcp",
    tag = "config",
    params(McpConfigQuery),
    request_body = McpServerConfig,
    responses((status = NO_CONTENT, description = "It is stored"), ConfigProblems)
)]
pub(crate) async fn write_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpConfigQuery>,
    CallerFiles(files): CallerFiles,
    JsonBody(entry): JsonBody<McpServerConfig>,
) -> Result<StatusCode, Problem> {
    let file = ConfigFile::find(&app, &files, EntryKind::Mcp, query.directory.as_deref()).await?;
    entry.check().map_err(|why| Problem::new(ProblemKind::Invalid, why))?;
    file.write(query.mcp_name.as_deref(), &entry).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete an MCP server from the configuration of a directory
#[utoipa::path(
    delete,
    path = "/v1/config/mcp",
    tag = "config",
    params(McpConfigQuery),
    responses((status = NO_CONTENT, description = "There is no such entry any more"), ConfigProblems)
)]
pub(crate) async fn delete_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpConfigQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<StatusCode, Problem> {
    let file = ConfigFile::find(&app, &files, EntryKind::Mcp, query.directory.as_deref()).await?;
    file.delete(query.mcp_name.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the MCP servers that are configured for a directory
#[utoipa::path(
    get,
    path = "/v1/config/mcp/entries",
    tag = "config",
    params(McpEntriesQuery),
    responses((status = OK, body = McpEntries), ConfigProblems)
)]
pub(crate) async fn list_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpEntriesQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<McpEntries>, Problem> {
    let file = ConfigFile::find(&app, &files, EntryKind::Mcp, query.directory.as_deref()).await?;
    Ok(Json(McpEntries { entries: file.list().await? }))
}
