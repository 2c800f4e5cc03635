//! Leases to be changed or ended, on their way to brokers.
//!
//! A request to a broker gives the next ones time to gather: what is handed over for a consumer group while requests
//! about it are under way goes out together when one of them ends. So nothing waits while nothing is under way, no
//! timer lingers, and requests grow with the load by themselves.
//!
//! - [`core`] is the pure part: given the time and events it says which request to send next.
//! - `Gatherer` puts it under a lock and sends; what it takes to send is a `Carrier`, which is the backend.
//!
//! What was handed over is sent whether or not somebody still waits for the result.

pub mod core;
mod driver;
mod types;

pub(crate) use self::driver::{Carrier, Gatherer, NotSent, Run};
pub use self::types::{Caller, Kind, Plan, Sending, Target};
