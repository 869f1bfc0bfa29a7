//! Decides which requests may run concurrently.
//!
//! A client may send many requests before the first one is answered, and expects that they take
//! effect in order. The order matters only for requests that use the same path. In this case the
//! later request waits.
//!
//! Answers to requests about the same handle are sent in the order of the requests. SFTP version 3
//! does not require this order, but `scp` relies on it. `scp` truncates the file at the first
//! answer that arrives out of order.

use std::collections::{HashMap, VecDeque};

use ab_core::WsPath;

/// How a request uses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// The request reads the file or directory at the path.
    Look,
    /// The request writes this range of bytes of a file. The end is exclusive.
    Write(u64, u64),
    /// The request makes any other change.
    Change,
}

/// The paths that a request reads and changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Footprint {
    places: Vec<(WsPath, Touch)>,
}

impl Footprint {
    /// Returns the footprint of a request that conflicts with no other request.
    pub(super) fn none() -> Self {
        Self::default()
    }

    pub(super) fn of(path: WsPath, touch: Touch) -> Self {
        Self { places: vec![(path, touch)] }
    }

    pub(super) fn and(mut self, path: WsPath, touch: Touch) -> Self {
        self.places.push((path, touch));
        self
    }

    fn meets(&self, other: &Footprint) -> bool {
        self.places.iter().any(|one| other.places.iter().any(|two| collide(one, two)))
    }
}

fn collide(one: &(WsPath, Touch), two: &(WsPath, Touch)) -> bool {
    let together = match (one.1, two.1) {
        (Touch::Look, Touch::Look) => true,
        (Touch::Write(start, end), Touch::Write(other_start, other_end)) => {
            end <= other_start || other_end <= start
        }
        _ => false,
    };
    !together && (one.0.starts_with(&two.0) || two.0.starts_with(&one.0))
}

/// The running requests, and answers that must wait for the answers of earlier requests about the
/// same handle.
#[derive(Debug)]
pub(super) struct Flights<T> {
    under_way: Vec<(u64, Footprint)>,
    next: u64,
    lanes: HashMap<u32, VecDeque<(u64, Option<T>)>>,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self { under_way: Vec::new(), next: 0, lanes: HashMap::new() }
    }
}

impl<T> Flights<T> {
    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn is_free(&self, footprint: &Footprint) -> bool {
        !self.under_way.iter().any(|(_, other)| footprint.meets(other))
    }

    /// Starts a request, and returns its number. `lane` is the handle that the request uses. The
    /// answer keeps its position among the answers about this handle.
    pub(super) fn start(&mut self, footprint: Footprint, lane: Option<u32>) -> u64 {
        self.next += 1;
        self.under_way.push((self.next, footprint));
        if let Some(lane) = lane {
            self.lanes.entry(lane).or_default().push_back((self.next, None));
        }
        self.next
    }

    /// Ends a request. Returns the answers that can now be sent.
    pub(super) fn land(&mut self, flight: u64, lane: Option<u32>, answer: T) -> Vec<T> {
        self.under_way.retain(|(each, _)| *each != flight);
        let Some(number) = lane else { return vec![answer] };
        let Some(lane) = self.lanes.get_mut(&number) else { return vec![answer] };
        if let Some(place) = lane.iter_mut().find(|place| place.0 == flight) {
            place.1 = Some(answer);
        }
        let mut leaving = Vec::new();
        while let Some((_, Some(_))) = lane.front() {
            leaving.extend(lane.pop_front().and_then(|place| place.1));
        }
        if lane.is_empty() {
            self.lanes.remove(&number);
        }
        leaving
    }
}

#[cfg(test)]
mod tests {
    use ab_core::PathParser;

    use super::*;

    fn at(path: &str, touch: Touch) -> Footprint {
        Footprint::of(PathParser::lenient().parse(path).unwrap(), touch)
    }

    #[test]
    fn only_those_that_touch_one_place_wait() {
        use Touch::{Change, Look, Write};
        for (one, two, together) in [
            (at("a", Look), at("a", Look), true),
            (at("a", Look), at("a", Change), false),
            (at("a", Change), at("b", Change), true),
            (at("a", Change), at("ab", Change), true),
            (at("a/b", Change), at("a", Look), false),
            (at("a/b", Change), at(".", Look), false),
            (at("a", Write(0, 10)), at("a", Write(10, 20)), true),
            (at("a", Write(0, 10)), at("a", Write(9, 20)), false),
            (at("a", Write(0, 10)), at("a", Look), false),
            (at("a", Write(0, 10)), at("a", Change), false),
            (Footprint::none(), at(".", Change), true),
        ] {
            let mut flights = Flights::default();
            let flight = flights.start(one.clone(), None);
            assert_eq!(flights.is_free(&two), together, "{one:?} {two:?}");
            assert_eq!(flights.land(flight, None, 1), [1]);
            assert!(flights.is_free(&two));
            assert_eq!(flights.len(), 0);
        }
    }

    #[test]
    fn answers_of_a_handle_leave_in_order() {
        let mut flights = Flights::default();
        let [first, second, other, third] =
            [Some(7), Some(7), Some(8), Some(7)].map(|lane| flights.start(Footprint::none(), lane));
        assert_eq!(flights.land(second, Some(7), "second"), Vec::<&str>::new());
        assert_eq!(flights.land(other, Some(8), "other"), ["other"]);
        assert_eq!(flights.land(first, Some(7), "first"), ["first", "second"]);
        assert_eq!(flights.land(third, Some(7), "third"), ["third"]);
        assert!(flights.lanes.is_empty());
    }
}
