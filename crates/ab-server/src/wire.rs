//! Shapes on the wire that several surfaces share.

use ab_core::effective;
use serde::Serialize;
use utoipa::ToSchema;

/// What is in force for commands
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = EffectivePolicy)]
pub struct EffectivePolicyBody {
    /// bwrap, landlock, software or none; null where no commands can run
    isolation: Option<&'static str>,
    controls: Vec<EffectivePolicyEntryBody>,
}

/// One thing that is controlled, and how
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EffectivePolicyEntryBody {
    /// What is controlled, such as files or network
    control: &'static str,
    /// How far it holds
    holds: &'static str,
    /// What was asked for
    asked: String,
    /// What is in force
    in_force: String,
    /// By which means
    mechanism: String,
    /// How that was proven here; null when nothing was tried
    proof: Option<String>,
}

impl From<&effective::EffectivePolicy> for EffectivePolicyBody {
    fn from(policy: &effective::EffectivePolicy) -> Self {
        let control = |control: &effective::EffectivePolicyControl| EffectivePolicyEntryBody {
            control: control.kind.as_str(),
            holds: control.strength.as_str(),
            asked: control.asked.clone(),
            in_force: control.in_force.clone(),
            mechanism: control.mechanism.clone(),
            proof: control.proof.clone(),
        };
        EffectivePolicyBody {
            isolation: policy.isolation.map(effective::Isolation::as_str),
            controls: policy.controls.iter().map(control).collect(),
        }
    }
}
