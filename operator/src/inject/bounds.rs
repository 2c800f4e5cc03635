//! How much strangers can make the webhook keep. Whoever reaches its port may ask: the API server has no address that a network policy
//! could name, and shares the port with every pod.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Connections from one address at the same time, so that one pod does not take all places; as many as an API server may open when a
/// hundred pods come at once.
const OF_ONE_ADDRESS: usize = 192;
/// Bytes of a question of which there may be one on each connection.
const SMALL: u64 = 256 << 10;
/// Larger ones that are read or answered at once; more wait.
const LARGE_AT_ONCE: usize = 2;
/// The largest question, bytes: the API server takes no pod of more than 3 MiB.
const QUESTION_MAX: usize = 4 << 20;
/// Questions that are looked into at once, whatever their size; more wait. In memory, text is a multiple of itself.
const ANSWERED_AT_ONCE: usize = 8;
/// Brackets, commas and colons outside of texts: each may become a value of a hundred bytes. A pod has some hundred, and a thousand
/// environment variables make 4,000.
const STRUCTURE_MAX: usize = 64 << 10;

/// Places for connections and questions.
pub(super) struct Bounds {
    seats: Arc<Mutex<HashMap<IpAddr, usize>>>,
    large: Arc<Semaphore>,
    answering: Semaphore,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            seats: Arc::default(),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            answering: Semaphore::new(ANSWERED_AT_ONCE),
        }
    }
}

/// A place for a connection, until it is dropped.
pub(super) struct Seat {
    seats: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.seats.lock();
        let left = seats.get(&self.address).map_or(0, |taken| taken.saturating_sub(1));
        if left == 0 {
            seats.remove(&self.address)
        } else {
            seats.insert(self.address, left)
        };
    }
}

/// A question as it came, and its place among the large ones, if it is one.
pub(super) struct Question {
    pub(super) body: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

impl Bounds {
    /// A place for a connection from `address`. None: it has as many as one may have.
    pub(super) fn seat(&self, address: IpAddr) -> Option<Seat> {
        let address = address.to_canonical();
        let mut seats = self.seats.lock();
        let taken = seats.entry(address).or_default();
        if *taken >= OF_ONE_ADDRESS {
            return None;
        }
        *taken += 1;
        Some(Seat { seats: self.seats.clone(), address })
    }

    /// Reads a question; a large one when it is its turn.
    ///
    /// # Errors
    /// It is too large, or the connection broke; for people.
    pub(super) async fn read(&self, request: Request<Incoming>) -> Result<Question, String> {
        let large = request.body().size_hint().upper().is_none_or(|bytes| bytes > SMALL);
        let place = match large {
            true => Some(self.large.clone().acquire_owned().await.map_err(|error| error.to_string())?),
            false => None,
        };
        let body = Limited::new(request.into_body(), QUESTION_MAX).collect().await;
        let body = body.map_err(|error| format!("the question cannot be read: {error}"))?.to_bytes();
        Ok(Question { body, _place: place })
    }

    /// The turn to look into a question.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.answering.acquire().await.ok()
    }
}

/// Whether a question has no more parts than a pod may have.
pub(super) fn is_bounded(text: &[u8]) -> bool {
    let (mut parts, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => parts += 1,
            _ => {}
        }
    }
    parts <= STRUCTURE_MAX
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Bounds, OF_ONE_ADDRESS, STRUCTURE_MAX, is_bounded};

    #[test]
    fn one_address_does_not_take_all_places() {
        let (bounds, one) = (Bounds::default(), IpAddr::from([10, 0, 0, 1]));
        let mut seats: Vec<_> = (0..OF_ONE_ADDRESS).map(|_| bounds.seat(one)).collect();
        assert!(seats.iter().all(Option::is_some));
        assert!(bounds.seat(one).is_none());
        assert!(bounds.seat(IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1])).is_none(), "the same in another form");
        assert!(bounds.seat(IpAddr::from([10, 0, 0, 2])).is_some());
        seats.pop();
        assert!(bounds.seat(one).is_some());
        drop(seats);
        assert!(bounds.seats.lock().is_empty(), "nothing is kept of who has gone");
    }

    #[test]
    fn parts_are_counted_outside_of_texts() {
        assert!(is_bounded(br#"{"a": ["b", {"c": 1}]}"#));
        let many = |part: &str, times: usize| format!("[{}0]", part.repeat(times));
        assert!(is_bounded(many("0,", STRUCTURE_MAX - 1).as_bytes()));
        assert!(!is_bounded(many("0,", STRUCTURE_MAX).as_bytes()));
        assert!(!is_bounded(many("[],", STRUCTURE_MAX / 2).as_bytes()));
        let text =
            format!(r#"{{"an annotation": "{}\"{}"}}"#, "{[,:".repeat(STRUCTURE_MAX), "]},:".repeat(STRUCTURE_MAX));
        assert!(is_bounded(text.as_bytes()));
    }
}
