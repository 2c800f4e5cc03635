//! The headers of requests and responses, as `remoting.md` of the project's facts lists them. Times are milliseconds: moments
//! since the epoch by the broker's clock, durations otherwise.

mod admin;
mod consume;
mod inspect;
mod send;
mod transaction;

pub use admin::*;
pub use consume::*;
pub use inspect::*;
pub use send::*;
pub use transaction::*;
