//! Counts the tokens and the cost that a session has used so far, over all processes of its agent.

use ab_acp::TokenCounts;
use ab_acp::catalog::AgentTokenReports;
use ab_api::SessionUsage;

/// Adds the reports of one agent process to the usage of the session before this process.
#[derive(Debug, Default)]
pub(super) struct UsageCounter {
    token_reports: AgentTokenReports,
    input: RunningTotal,
    output: RunningTotal,
    cost_micros: RunningTotal,
    /// Whether this process has already reported the tokens of the whole conversation.
    has_token_total: bool,
    has_cost: bool,
}

/// A total that never decreases.
#[derive(Debug, Default, Clone, Copy)]
struct RunningTotal {
    so_far: u64,
    /// The usage from before the agent began to count at zero. It is added to each reported total.
    base: u64,
}

impl RunningTotal {
    fn new(before: Option<u64>) -> Self {
        Self { so_far: before.unwrap_or_default(), base: 0 }
    }

    fn count_from_zero(&mut self) {
        self.base = self.so_far;
    }

    fn add(&mut self, amount: u64) -> u64 {
        self.so_far = self.so_far.saturating_add(amount);
        self.so_far
    }

    fn report(&mut self, total: u64) -> u64 {
        self.so_far = self.so_far.max(self.base.saturating_add(total));
        self.so_far
    }
}

impl UsageCounter {
    /// Creates a counter. `before` is the usage of the session before this agent process started.
    pub(super) fn new(token_reports: AgentTokenReports, before: &SessionUsage) -> Self {
        Self {
            token_reports,
            input: RunningTotal::new(before.input_tokens),
            output: RunningTotal::new(before.output_tokens),
            cost_micros: RunningTotal::new(before.cost_micros),
            has_token_total: false,
            has_cost: false,
        }
    }

    /// Adds the report at the end of a turn. Returns the input and output tokens of the session so
    /// far.
    pub(super) fn count_tokens(&mut self, reported: TokenCounts) -> (u64, u64) {
        let TokenCounts { input, output, .. } = reported;
        match self.token_reports {
            AgentTokenReports::Turn => (self.input.add(input), self.output.add(output)),
            AgentTokenReports::Session => {
                let before = self.input.so_far.saturating_add(self.output.so_far);
                let is_first = !std::mem::replace(&mut self.has_token_total, true);
                // An agent that was restarted either continues its earlier count or begins again at
                // zero. If the first report is below the earlier total, the agent began at zero.
                if is_first && input.saturating_add(output) < before {
                    self.input.count_from_zero();
                    self.output.count_from_zero();
                }
                (self.input.report(input), self.output.report(output))
            }
        }
    }

    /// Adds a report of the cost of the conversation. Returns the cost of the session so far.
    pub(super) fn count_cost(&mut self, micros: u64) -> u64 {
        let is_first = !std::mem::replace(&mut self.has_cost, true);
        if is_first && micros < self.cost_micros.so_far {
            self.cost_micros.count_from_zero();
        }
        self.cost_micros.report(micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(tokens: u64, cost: u64) -> SessionUsage {
        SessionUsage {
            input_tokens: Some(tokens),
            output_tokens: Some(tokens),
            cost_micros: Some(cost),
            ..SessionUsage::default()
        }
    }

    /// Checks the input tokens of the session after each report, if `used` tokens were used before.
    fn check(reports: AgentTokenReports, used: u64, reported: &[u64], expect: &[u64]) {
        let mut counter = UsageCounter::new(reports, &before(used, used));
        let counted = reported.iter().map(|&tokens| {
            let tokens = TokenCounts { total: 2 * tokens, input: tokens, output: tokens };
            let (input, output) = counter.count_tokens(tokens);
            assert_eq!(input, output);
            input
        });
        assert_eq!(counted.collect::<Vec<_>>(), expect, "{reports:?} after {used}");
    }

    #[test]
    fn tokens_of_turns_are_added_and_totals_are_not() {
        check(AgentTokenReports::Turn, 0, &[10, 5, 10], &[10, 15, 25]);
        check(AgentTokenReports::Turn, 100, &[10, 5], &[110, 115]);
        check(AgentTokenReports::Session, 0, &[10, 15, 25], &[10, 15, 25]);
        // The restarted agent continues its earlier count in the first case, and begins at zero in
        // the second.
        check(AgentTokenReports::Session, 100, &[110, 115], &[110, 115]);
        check(AgentTokenReports::Session, 100, &[10, 15], &[110, 115]);
    }

    #[test]
    fn cost_of_a_loaded_agent_is_added_if_it_counts_from_zero() {
        for (reported, expect) in [([120, 150], [120, 150]), ([20, 50], [120, 150])] {
            let mut counter = UsageCounter::new(AgentTokenReports::Turn, &before(0, 100));
            assert_eq!(reported.map(|micros| counter.count_cost(micros)), expect);
        }
        let mut counter = UsageCounter::new(AgentTokenReports::Turn, &SessionUsage::default());
        // A report below the previous one corrects an estimate. It does not mean that the agent
        // began at zero.
        assert_eq!([75, 74, 80].map(|micros| counter.count_cost(micros)), [75, 75, 80]);
    }
}
