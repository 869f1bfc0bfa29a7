//! A table of pending requests in both directions. Does no I/O.

use std::collections::{HashMap, HashSet};

use super::envelope::RpcId;

/// Requests of clients and of the agent that have no response yet. `W` is the type of the value
/// that waits for the response to a client's request.
#[derive(Debug)]
pub(crate) struct PendingRequests<W> {
    bound: usize,
    /// A request stays here until its response arrives, even if its caller disconnects, because the
    /// agent may still answer its id.
    of_clients: HashMap<RpcId, W>,
    of_agent: HashSet<RpcId>,
}

/// Why a request cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddRequestError {
    /// A request with this id is still pending.
    DuplicateId,
    /// The number of pending requests has reached the limit.
    Full,
}

impl<W> PendingRequests<W> {
    /// Creates a table with at most `max` requests in each direction.
    pub(crate) fn new(max: usize) -> PendingRequests<W> {
        PendingRequests { bound: max, of_clients: HashMap::new(), of_agent: HashSet::new() }
    }

    /// Adds a client's request.
    ///
    /// # Errors
    ///
    /// Fails if the id is in use or the table is full. The table is then unchanged.
    pub(crate) fn add_client_request(
        &mut self,
        id: RpcId,
        waiter: W,
    ) -> Result<(), AddRequestError> {
        if self.of_clients.contains_key(&id) {
            return Err(AddRequestError::DuplicateId);
        }
        if self.of_clients.len() >= self.bound {
            return Err(AddRequestError::Full);
        }
        self.of_clients.insert(id, waiter);
        Ok(())
    }

    /// Removes the request that a response of the agent belongs to, and returns its waiter.
    pub(crate) fn take_client_request(&mut self, id: &RpcId) -> Option<W> {
        self.of_clients.remove(id)
    }

    /// Adds a request of the agent. Ignored if the table is full.
    pub(crate) fn add_agent_request(&mut self, id: RpcId) {
        if self.of_agent.len() < self.bound {
            self.of_agent.insert(id);
        }
    }

    /// Removes a request of the agent that a client has answered. Returns `false` if there is no
    /// such request.
    pub(crate) fn remove_agent_request(&mut self, id: &RpcId) -> bool {
        self.of_agent.remove(id)
    }

    /// Whether the agent waits for a response from a client.
    pub(crate) fn has_agent_requests(&self) -> bool {
        !self.of_agent.is_empty()
    }

    /// Removes all waiters and returns them with the ids of their requests. Called after the agent
    /// has ended.
    pub(crate) fn drain_client_requests(&mut self) -> Vec<(RpcId, W)> {
        self.of_agent.clear();
        self.of_clients.drain().collect()
    }

    /// The number of client requests that have no response yet.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.of_clients.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.of_clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn id(number: u8) -> RpcId {
        RpcId::Number(number.to_string())
    }

    #[test]
    fn an_id_in_flight_is_refused_until_its_response() {
        let mut table = PendingRequests::new(2);
        assert_eq!(table.add_client_request(id(1), 'a'), Ok(()));
        assert_eq!(table.add_client_request(id(1), 'b'), Err(AddRequestError::DuplicateId));
        assert_eq!(table.add_client_request(RpcId::Text("1".to_owned()), 'c'), Ok(()));
        assert_eq!(table.add_client_request(id(3), 'd'), Err(AddRequestError::Full));
        assert_eq!(table.take_client_request(&id(1)), Some('a'));
        assert_eq!(table.take_client_request(&id(1)), None);
        assert_eq!(table.add_client_request(id(1), 'e'), Ok(()));
        let mut all = table.drain_client_requests();
        all.sort_unstable();
        let expect = vec![(id(1), 'e'), (RpcId::Text("1".to_owned()), 'c')];
        assert_eq!((all, table.is_empty()), (expect, true));
    }

    #[test]
    fn requests_of_the_agent_are_apart_from_those_of_clients() {
        let mut table = PendingRequests::new(2);
        table.add_client_request(id(1), ()).unwrap();
        table.add_agent_request(id(1));
        assert!(table.has_agent_requests());
        table.remove_agent_request(&id(1));
        assert!(!table.has_agent_requests());
        assert_eq!(table.take_client_request(&id(1)), Some(()));
    }

    proptest! {
        /// Every accepted request is answered exactly once: by its response or by the end of the
        /// agent.
        #[test]
        fn every_waiter_is_told_once(steps in vec((any::<bool>(), 0_u8..6), 0..60), bound in 1_usize..5) {
            let mut table = PendingRequests::new(bound);
            let mut model = BTreeMap::new();
            let mut told = Vec::new();
            for (index, (is_request, number)) in steps.into_iter().enumerate() {
                if is_request {
                    let expect = if model.contains_key(&number) {
                        Err(AddRequestError::DuplicateId)
                    } else if model.len() == bound {
                        Err(AddRequestError::Full)
                    } else {
                        model.insert(number, index);
                        Ok(())
                    };
                    prop_assert_eq!(table.add_client_request(id(number), index), expect);
                } else {
                    let waiter = table.take_client_request(&id(number));
                    prop_assert_eq!(waiter, model.remove(&number));
                    told.extend(waiter);
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let mut rest: Vec<usize> = table.drain_client_requests().into_iter().map(|(_, waiter)| waiter).collect();
            rest.sort_unstable();
            let mut expect: Vec<usize> = model.into_values().collect();
            expect.sort_unstable();
            prop_assert_eq!(&rest, &expect);
            told.extend(rest);
            let count = told.len();
            told.sort_unstable();
            told.dedup();
            prop_assert_eq!(told.len(), count);
        }
    }
}
