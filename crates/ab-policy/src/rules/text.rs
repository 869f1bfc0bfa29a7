//! Serializes verdicts as text, for rules files.

pub(super) mod verdict {
    //! Serializes a field that must have a verdict.

    use ab_core::Verdict;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in crate::rules) fn serialize<S: Serializer>(
        verdict: &Verdict,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(verdict.as_str())
    }

    pub(in crate::rules) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Verdict, D::Error> {
        let text = String::deserialize(from)?;
        let all = [Verdict::Allow, Verdict::Ask, Verdict::Deny];
        let found = all.into_iter().find(|verdict| verdict.as_str() == text);
        found.ok_or_else(|| de::Error::unknown_variant(&text, &["allow", "ask", "deny"]))
    }
}

pub(super) mod optional_verdict {
    //! Serializes a field that may have no verdict.

    use ab_core::Verdict;
    use serde::{Deserializer, Serializer};

    pub(in crate::rules) fn serialize<S: Serializer>(
        verdict: &Option<Verdict>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match verdict {
            Some(verdict) => super::verdict::serialize(verdict, to),
            None => to.serialize_none(),
        }
    }

    pub(in crate::rules) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Verdict>, D::Error> {
        super::verdict::deserialize(from).map(Some)
    }
}
