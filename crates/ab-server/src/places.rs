//! Limits the number of connections, in total and for each address.
//!
//! A connection counts towards these limits (it holds a *place*) until it has ended, also after an
//! upgrade to a WebSocket.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gate::block;
use crate::port::HttpServerLimits;

/// The limits of a port and its current connections.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: Arc<Semaphore>,
    per_address: usize,
    exempt: fn(IpAddr) -> bool,
    /// For each address that is not exempt and has connections, the number of its connections.
    held: Mutex<HashMap<IpAddr, usize>>,
    refused: AtomicU64,
}

/// One reserved connection. It counts towards the total limit, but not yet towards the limit of an
/// address.
#[derive(Debug)]
pub(crate) struct FreePlace {
    _permit: OwnedSemaphorePermit,
}

/// Counts one connection towards both limits, until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    _taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken {
    _free: FreePlace,
    _of_address: Option<OfAddress>,
}

/// Counts one connection of an address until it is dropped.
#[derive(Debug)]
struct OfAddress {
    places: Places,
    address: IpAddr,
}

impl Places {
    pub(crate) fn new(bounds: &HttpServerLimits) -> Self {
        Self(Arc::new(Shared {
            all: Arc::new(Semaphore::new(bounds.max_connections)),
            per_address: bounds.max_connections_per_address,
            exempt: bounds.is_exempt_address,
            held: Mutex::default(),
            refused: AtomicU64::new(0),
        }))
    }

    /// Waits until a place in the total limit is free.
    pub(crate) async fn free(&self) -> Option<FreePlace> {
        self.0.all.clone().acquire_owned().await.ok().map(|_permit| FreePlace { _permit })
    }

    /// Assigns a free place to a connection from `peer`. `None` if the address of `peer` has too
    /// many connections.
    pub(crate) fn take(&self, free: FreePlace, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        if (self.0.exempt)(peer) {
            return Some(Place::new(free, None));
        }
        let address = block(peer);
        let mut held = self.lock();
        let count = held.entry(address).or_default();
        if *count >= self.0.per_address {
            drop(held);
            self.log_refused(address);
            return None;
        }
        *count += 1;
        drop(held);
        Some(Place::new(free, Some(OfAddress { places: self.clone(), address })))
    }

    /// Logs the first refused connection, and then each time their number has doubled.
    fn log_refused(&self, address: IpAddr) {
        let refused = self.0.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused.is_power_of_two() {
            let most = self.0.per_address;
            tracing::warn!(%address, most, refused, "refused a connection: too many of one address");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new(free: FreePlace, of_address: Option<OfAddress>) -> Self {
        Self { _taken: Arc::new(Taken { _free: free, _of_address: of_address }) }
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        if let Some(count) = held.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_has_its_part_of_the_places_and_loopback_all() {
        let bounds = HttpServerLimits {
            max_connections: 8,
            max_connections_per_address: 2,
            ..HttpServerLimits::default()
        };
        let places = Places::new(&bounds);
        let take = async |peer: &str| {
            let free = places.free().await.unwrap();
            places.take(free, peer.parse().unwrap())
        };
        let mut held = vec![take("10.0.0.1").await.unwrap(), take("10.0.0.1").await.unwrap()];
        assert!(take("10.0.0.1").await.is_none());
        // An IPv4-mapped IPv6 address counts as the IPv4 address, and all addresses of an IPv6 /64
        // count as one.
        assert!(take("::ffff:10.0.0.1").await.is_none());
        held.push(take("2001:db8::1").await.unwrap());
        held.push(take("2001:db8::2").await.unwrap());
        assert!(take("2001:db8::3").await.is_none());
        for loopback in ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"] {
            held.push(take(loopback).await.unwrap());
        }
        assert_eq!(places.0.all.available_permits(), 0);
        held.remove(0);
        let again = take("10.0.0.1").await.unwrap();
        // A clone keeps the place occupied.
        let kept = again.clone();
        drop(again);
        drop(held);
        assert_eq!(places.0.all.available_permits(), 7);
        assert_eq!(places.lock().len(), 1);
        drop(kept);
        assert!(places.lock().is_empty());
    }
}
