//! What is left in a broker that somebody waits for.

use waybill_protocol::remoting::codes::own;
use waybill_protocol::remoting::{Command, LeftBody};

use super::{AdminError, Connection};

/// What is left, in words.
#[must_use]
pub(crate) fn in_words(left: &LeftBody) -> String {
    /// Topics that are named.
    const NAMED: usize = 5;
    let counts = [
        (left.unread, "unread"),
        (left.in_flight, "in flight"),
        (left.delayed, "delayed"),
        (left.half, "of open transactions"),
        (left.dead_letters, "dead letters"),
    ];
    let said: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let named: Vec<&str> = left.topics.iter().take(NAMED).map(String::as_str).collect();
    let more = if left.topics.len() > named.len() { " and others" } else { "" };
    format!("{} (in {}{more})", said.join(", "), named.join(", "))
}

/// Asks a broker what is left in it.
///
/// # Errors
/// The broker cannot be asked, or is of a version that does not know the question.
pub(crate) async fn left(broker: &mut Connection) -> Result<LeftBody, AdminError> {
    let answer = broker.demand(Command::request(own::COUNT_LEFT)).await?;
    answer.json().map_err(|error| AdminError::Unreachable(format!("its answer cannot be read: {error}")))
}
