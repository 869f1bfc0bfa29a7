//! Drafts: tasks that are edited before they start.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::id::DraftId;
use crate::time::Time;

/// A draft: the fields of a task as far as they are known, with the times of the draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Draft {
    pub id: DraftId,
    #[serde(flatten)]
    pub content: DraftContent,
    pub created_at: Time,
    pub updated_at: Time,
}

/// Combines the fields of the content with those of the response to its creation. The derived
/// schema is not used, because it would refer to the schema of the content, and the schema of the
/// content allows no additional fields.
impl PartialSchema for Draft {
    fn schema() -> RefOr<Schema> {
        let mut schema = DraftContent::schema();
        if let (RefOr::T(Schema::Object(draft)), RefOr::T(Schema::Object(created))) =
            (&mut schema, DraftCreatedResponse::schema())
        {
            draft.properties.extend(created.properties);
            draft.required.extend(created.required);
        }
        schema
    }
}

impl ToSchema for Draft {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        DraftContent::schemas(schemas);
        DraftCreatedResponse::schemas(schemas);
    }
}

/// The answer to `POST /api/v1/drafts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DraftCreatedResponse {
    pub id: DraftId,
    pub created_at: Time,
    pub updated_at: Time,
}

/// The fields of a task that a draft has so far. They are checked as a task when the draft is started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftContent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<Map<String, Value>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_open: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Vec<Map<String, Value>>>,
}
