//! Leases as a table for people.

use super::listing::{Lease, Leases};
use crate::output;
use crate::quantity::millis;

pub(super) fn table(leases: &Leases) -> String {
    let now_ms = leases.now;
    let rows = leases.leases.iter().map(|lease| {
        let heard = leases.watched.get(&lease.holder).map(|last_ms| millis(now_ms - last_ms));
        [
            printable(&lease.group),
            printable(&lease.topic),
            lease.queue_id.to_string(),
            lease.offset.to_string(),
            if lease.holder.is_empty() { "-".to_owned() } else { printable(&lease.holder) },
            lease.attempts.to_string(),
            millis(now_ms - lease.pop_time),
            if lease.deadline > now_ms { millis(lease.deadline - now_ms) } else { "over".to_owned() },
            lease.changes.to_string(),
            lease.renewals.to_string(),
            why(leases, lease).to_owned(),
            heard.unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let heading = [
        "GROUP",
        "TOPIC",
        "QUEUE",
        "OFFSET",
        "HOLDER",
        "DELIVERIES",
        "HELD FOR",
        "ENDS IN",
        "CHANGES",
        "RENEWALS",
        "WHY",
        "HEARD",
    ];
    let more = if leases.truncated { "and more: --group, --topic and --client narrow the list\n" } else { "" };
    format!("{}{more}{}", output::table(heading, rows), groups(leases))
}

/// A name that clients chose, without what would move the cursor or turn the rest of the line around.
fn printable(name: &str) -> String {
    let mut printable = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            // Marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                printable.extend(c.escape_unicode());
            }
            c if c.is_control() => printable.extend(c.escape_debug()),
            c => printable.push(c),
        }
    }
    printable
}

/// What the groups say for leases from now on.
fn groups(leases: &Leases) -> String {
    if leases.groups.is_empty() {
        return String::new();
    }
    let of_sidecar = || "sidecar's".to_owned();
    let rows = leases.groups.iter().map(|(name, group)| {
        [
            printable(name),
            group.renew.map_or_else(of_sidecar, |renew| if renew { "on" } else { "off" }.to_owned()),
            group.invisible_time.map_or_else(of_sidecar, millis),
            group.batch_max.map_or_else(of_sidecar, |max| max.to_string()),
            format!("{}m", group.consume_timeout_minutes),
        ]
    });
    let heading = ["GROUP", "RENEW", "INVISIBLE DURATION", "BATCH MAX", "CONSUME TIMEOUT"];
    format!("\n{}", output::table(heading, rows))
}

/// How the lease came to end when it does.
fn why(leases: &Leases, lease: &Lease) -> &'static str {
    match lease.changed_by.as_deref() {
        Some("renewal") => "renewed",
        Some("client") => "by client",
        Some("extension") => "extended",
        Some("return") => "returned",
        Some("operator") => "by operator",
        Some("broker") => "client gone",
        _ if lease.changes > 0 => "changed",
        _ if is_whole(leases, lease) => "consume timeout",
        _ => "as received",
    }
}

/// Whether the message was received for the time that its group has to consume one.
fn is_whole(leases: &Leases, lease: &Lease) -> bool {
    let minutes = leases.groups.get(&lease.group).map(|group| group.consume_timeout_minutes);
    // The pop time can be some milliseconds later than the clock, so that it is later than the one before.
    minutes.is_some_and(|minutes| lease.invisible_time.abs_diff(minutes.saturating_mul(60_000)) < 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(json: &str) -> Leases {
        serde_json::from_str(json).expect("JSON")
    }

    fn lines(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn shows_how_long_and_by_whom() {
        let leases = leases(
            r#"{"leases":[{"group":"g","topic":"orders","queueId":3,"offset":17,"holder":"pod-1","popTime":1000,
            "invisibleTime":60000,"deadline":61000,"attempts":2,"changes":4,"renewals":3,"changedBy":"renewal"},
            {"group":"h","topic":"t","holder":"","popTime":1000,"deadline":500}],
            "truncated":true,"now":31000,"watched":{"pod-1":29000},"groups":{
            "g":{"renew":false,"consumeTimeoutMinutes":15},"h":{"consumeTimeoutMinutes":5,"invisibleTime":30000,"batchMax":7}}}"#,
        );
        let text = table(&leases);
        let lines = lines(&text);
        assert_eq!(lines[1], ["g", "orders", "3", "17", "pod-1", "2", "30s", "30s", "4", "3", "renewed", "2s"]);
        assert_eq!(lines[2], ["h", "t", "0", "0", "-", "0", "30s", "over", "0", "0", "as", "received", "-"]);
        assert!(lines[3].ends_with(&["narrow", "the", "list"]));
        assert_eq!(lines[6], ["g", "off", "sidecar's", "sidecar's", "15m"]);
        assert_eq!(lines[7], ["h", "sidecar's", "30s", "7", "5m"]);
    }

    #[test]
    fn a_client_id_cannot_move_the_cursor() {
        assert_eq!(printable("pod-1@7\u{1b}[2J\r\n\t"), "pod-1@7\\u{1b}[2J\\r\\n\\t");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{9b}d"), "a\\u{202e}b\\u{2066}c\\u{9b}d");
        assert_eq!(printable("grün'\"\\名"), "grün'\"\\名", "what is harmless stays");
        let leases = leases(r#"{"leases":[{"group":"g","topic":"t","holder":"a\u001bb"}]}"#);
        assert_eq!(lines(&table(&leases))[1][4], "a\\u{1b}b");
    }

    #[test]
    fn says_why_a_lease_ends_when_it_does() {
        let leases = leases(r#"{"groups":{"g":{"consumeTimeoutMinutes":15}}}"#);
        let lease = |changes, changed_by: Option<&str>, invisible_time| {
            let changed_by = changed_by.map(str::to_owned);
            why(&leases, &Lease { group: "g".to_owned(), changes, changed_by, invisible_time, ..Lease::default() })
        };
        assert_eq!(lease(0, None, 60_000), "as received");
        assert_eq!(lease(0, None, 899_997), "consume timeout", "short of it by the pop time");
        assert_eq!(lease(1, None, 900_000), "changed", "by somebody who does not say so");
        for by in waybill_protocol::remoting::ChangedBy::ALL.iter().filter_map(|by| by.word()) {
            assert_ne!(lease(1, Some(by), 900_000), "changed", "{by}");
        }
        assert_eq!(lease(2, Some("broker"), 900_000), "client gone");
    }
}
