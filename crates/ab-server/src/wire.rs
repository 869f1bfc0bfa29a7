//! JSON types that several surfaces share.

use ab_core::effective_policy;
use serde::Serialize;
use utoipa::ToSchema;

/// The controls in force for commands
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = EffectivePolicy)]
pub struct EffectivePolicyBody {
    /// bwrap, landlock, software or none; null if no commands can run
    isolation: Option<&'static str>,
    controls: Vec<EffectivePolicyEntryBody>,
}

/// One control, and how it is enforced
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EffectivePolicyEntryBody {
    /// What is controlled, such as files or network
    control: &'static str,
    /// How strongly it is enforced
    holds: &'static str,
    /// What was requested
    asked: String,
    /// What is in force
    in_force: String,
    /// The mechanism
    mechanism: String,
    /// How this was proven on this host; null if nothing was tested
    proof: Option<String>,
}

impl From<&effective_policy::EffectivePolicy> for EffectivePolicyBody {
    fn from(policy: &effective_policy::EffectivePolicy) -> Self {
        let control =
            |control: &effective_policy::EffectivePolicyControl| EffectivePolicyEntryBody {
                control: control.kind.as_str(),
                holds: control.strength.as_str(),
                asked: control.requested.clone(),
                in_force: control.in_force.clone(),
                mechanism: control.mechanism.clone(),
                proof: control.proof.clone(),
            };
        EffectivePolicyBody {
            isolation: policy.isolation.map(effective_policy::Isolation::as_str),
            controls: policy.controls.iter().map(control).collect(),
        }
    }
}
