//! Skills that are configured for a directory.

use std::collections::BTreeMap;

use ab_api::SkillsConfig;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{CallerFiles, ConfigFile, ConfigProblems, EntryKind};
use crate::app::HttpApp;
use crate::extract::{JsonBody, QueryParams};
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkillsConfigQuery {
    /// The directory, in the served root; required
    directory: Option<String>,
    /// The name of the entry; required. `skill_name` is the same
    #[serde(alias = "skill_name")]
    skill_name: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SkillEntriesQuery {
    /// The directory, in the served root; required
    directory: Option<String>,
}

/// All skills entries of a directory
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillEntries {
    /// The entries by name
    entries: BTreeMap<String, SkillsConfig>,
}

/// Read a skills entry from the configuration of a directory
#[utoipa::path(
    get,
    path = "/v1/config/skills",
    tag = "config",
    params(SkillsConfigQuery),
    responses((status = OK, body = SkillsConfig), ConfigProblems)
)]
pub(crate) async fn read_skills(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<SkillsConfigQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<SkillsConfig>, Problem> {
    let file =
        ConfigFile::find(&app, &files, EntryKind::Skills, query.directory.as_deref()).await?;
    file.read(query.skill_name.as_deref()).await.map(Json)
}

/// Store a skills entry in the configuration of a directory
#[utoipa::path(
    put,
    path = "/v1/config/skills",
    tag = "config",
    params(SkillsConfigQuery),
    request_body = SkillsConfig,
    responses((status = NO_CONTENT, description = "It is stored"), ConfigProblems)
)]
pub(crate) async fn write_skills(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<SkillsConfigQuery>,
    CallerFiles(files): CallerFiles,
    JsonBody(entry): JsonBody<SkillsConfig>,
) -> Result<StatusCode, Problem> {
    let file =
        ConfigFile::find(&app, &files, EntryKind::Skills, query.directory.as_deref()).await?;
    file.write(query.skill_name.as_deref(), &entry).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a skills entry from the configuration of a directory
#[utoipa::path(
    delete,
    path = "/v1/config/skills",
    tag = "config",
    params(SkillsConfigQuery),
    responses((status = NO_CONTENT, description = "There is no such entry any more"), ConfigProblems)
)]
pub(crate) async fn delete_skills(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<SkillsConfigQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<StatusCode, Problem> {
    let file =
        ConfigFile::find(&app, &files, EntryKind::Skills, query.directory.as_deref()).await?;
    file.delete(query.skill_name.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the skills entries in the configuration of a directory
#[utoipa::path(
    get,
    path = "/v1/config/skills/entries",
    tag = "config",
    params(SkillEntriesQuery),
    responses((status = OK, body = SkillEntries), ConfigProblems)
)]
pub(crate) async fn list_skills(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<SkillEntriesQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<SkillEntries>, Problem> {
    let file =
        ConfigFile::find(&app, &files, EntryKind::Skills, query.directory.as_deref()).await?;
    Ok(Json(SkillEntries { entries: file.list().await? }))
}
