//! Budgets of sessions, and the resources that a session has used.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::violation::FieldViolations;

const MAX_TURNS: f64 = 1_000_000.0;
const MAX_SECONDS: f64 = 366.0 * 24.0 * 3600.0;
const MAX_TOKENS: f64 = 1e15;
const MAX_COST: f64 = 1e6;

/// What a session may use before a person is asked. The budget is checked before a prompt is sent.
/// A running turn is not interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionBudget {
    /// Maximum number of turns of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// Maximum time of all turns together, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<u64>,
    /// Maximum number of input and output tokens, if the agent reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost in US dollars, if the agent reports the cost.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "fields::serialize_finite"
    )]
    pub cost_usd: Option<f64>,
}

/// What a session has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionUsage {
    /// Number of turns of the agent.
    #[serde(default)]
    pub turns: u64,
    /// The time of all turns that have ended, in milliseconds.
    #[serde(default)]
    pub wall_millis: u64,
    /// Number of input tokens, if the agent reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Number of output tokens, if the agent reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Cost in millionths of a US dollar, if the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

impl SessionUsage {
    /// The number of input and output tokens together.
    pub fn total_tokens(&self) -> Option<u64> {
        match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => {
                Some(input.unwrap_or_default().saturating_add(output.unwrap_or_default()))
            }
        }
    }

    /// Whether nothing was used.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl SessionBudget {
    /// Describes the first limit of the budget that was reached since `start`. `None` if no limit
    /// was reached.
    pub fn describe_exceeded_limit(
        &self,
        start: &SessionUsage,
        now: &SessionUsage,
    ) -> Option<String> {
        let since = |now: u64, start: u64| now.saturating_sub(start);
        let turns = since(now.turns, start.turns);
        let seconds = since(now.wall_millis, start.wall_millis) / 1000;
        let tokens = now
            .total_tokens()
            .map(|tokens| since(tokens, start.total_tokens().unwrap_or_default()));
        let micros = now.cost_micros.map(|cost| since(cost, start.cost_micros.unwrap_or_default()));
        let cost = micros.map(|micros| micros as f64 / 1e6);
        if let Some(limit) = self.turns.filter(|limit| turns >= *limit) {
            return Some(format!("{turns} of {limit} turns"));
        }
        if let Some(limit) = self.wall_seconds.filter(|limit| seconds >= *limit) {
            return Some(format!("{seconds} of {limit} seconds"));
        }
        if let (Some(limit), Some(tokens)) = (self.tokens, tokens)
            && tokens >= limit
        {
            return Some(format!("{tokens} of {limit} tokens"));
        }
        if let (Some(limit), Some(cost)) = (self.cost_usd, cost)
            && cost >= limit
        {
            return Some(format!("{cost:.2} of {limit:.2} US dollars"));
        }
        None
    }
}

/// Reads and checks the `budget` member of a task.
pub(crate) fn budget(mut fields: Fields<'_>, found: &mut FieldViolations) -> Option<SessionBudget> {
    let mut whole = |name: &'static str, most: f64, found: &mut FieldViolations| {
        let value = fields.number(name, found)?;
        if value.fract() != 0.0 || !(1.0..=most).contains(&value) {
            found
                .add_invalid(fields.path(name), format!("must be a whole number from 1 to {most}"));
        }
        Some(value as u64)
    };
    let turns = whole("turns", MAX_TURNS, found);
    let wall_seconds = whole("wallSeconds", MAX_SECONDS, found);
    let tokens = whole("tokens", MAX_TOKENS, found);
    let cost_usd = fields.number("costUsd", found);
    if cost_usd.is_some_and(|cost| !(cost > 0.0 && cost <= MAX_COST)) {
        found.add_invalid(fields.path("costUsd"), "must be more than 0 and at most 1000000");
    }
    fields.end(found);
    let budget = SessionBudget { turns, wall_seconds, tokens, cost_usd };
    (budget != SessionBudget::default()).then_some(budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_that_is_not_finite_is_not_sent() {
        for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let budget = SessionBudget { cost_usd: Some(cost), ..SessionBudget::default() };
            let error = serde_json::to_string(&budget).expect_err("not in JSON");
            assert!(error.to_string().contains("finite"), "{error}");
        }
    }

    #[test]
    fn a_budget_is_used_up_part_by_part() {
        let budget = SessionBudget {
            turns: Some(3),
            wall_seconds: Some(60),
            tokens: Some(100),
            cost_usd: Some(1.5),
        };
        let start = SessionUsage { turns: 1, ..SessionUsage::default() };
        let check = |now: SessionUsage, expect: Option<&str>| {
            assert_eq!(budget.describe_exceeded_limit(&start, &now).as_deref(), expect, "{now:?}");
        };
        check(start, None);
        check(SessionUsage { turns: 4, ..start }, Some("3 of 3 turns"));
        check(SessionUsage { wall_millis: 59_999, ..start }, None);
        check(SessionUsage { wall_millis: 60_000, ..start }, Some("60 of 60 seconds"));
        let tokens = SessionUsage { input_tokens: Some(90), output_tokens: Some(12), ..start };
        check(tokens, Some("102 of 100 tokens"));
        let most = Some(u64::MAX);
        let tokens = SessionUsage { input_tokens: most, output_tokens: most, ..start };
        check(tokens, Some(&format!("{} of 100 tokens", u64::MAX)));
        check(
            SessionUsage { cost_micros: Some(1_500_000), ..start },
            Some("1.50 of 1.50 US dollars"),
        );
        check(SessionUsage { cost_micros: Some(1_499_999), ..start }, None);
    }
}
