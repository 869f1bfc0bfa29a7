//! The proofs of `ab-policy`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

#[test]
fn built_in() {
    ab_policy::built_in_rules().unwrap();
}
