use super::*;

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn millis(ms: i64) -> prost_types::Duration {
    prost_types::Duration { seconds: ms / 1_000, nanos: (ms % 1_000 * 1_000_000) as i32 }
}

fn resource(name: &str) -> Resource {
    Resource { resource_namespace: String::new(), name: name.to_owned() }
}

fn message() -> Message {
    let system = SystemProperties { message_id: "id".into(), ..Default::default() };
    Message { topic: Some(resource("t")), body: "x".into(), system_properties: Some(system), ..Default::default() }
}

fn with(change: impl FnOnce(&mut SystemProperties)) -> Message {
    let mut message = message();
    change(message.system_properties.as_mut().expect("system properties"));
    message
}

fn check(messages: &[Message]) -> Result<&str, Problem> {
    super::messages(messages, &Config::default(), 1_000_000)
}

fn problem(message: Message) -> Option<Problem> {
    check(&[message]).err()
}

#[test]
fn how_long_a_receive_waits() {
    let config = Config::default();
    let wait = |asked: Option<i64>, deadline: Option<u64>, request_timeout: Option<i64>| {
        let (asked, request_timeout) = (asked.map(millis), request_timeout.map(millis));
        let deadline = deadline.map(Duration::from_millis);
        polling_ms(asked.as_ref(), deadline, request_timeout.as_ref(), false, &config)
    };
    let too_short = Err(Problem::PollingTime { old_client: false });
    // What is asked for, within 5 s and 20 s.
    assert_eq!(wait(Some(0), Some(60_000), None), Ok(5_000));
    assert_eq!(wait(Some(-5), Some(60_000), None), Ok(5_000));
    assert_eq!(wait(Some(8_000), Some(60_000), None), Ok(8_000));
    assert_eq!(wait(Some(25_000), Some(60_000), None), Ok(20_000));
    assert_eq!(wait(Some(i64::MAX / 4), Some(60_000), None), Ok(20_000));
    // No wish: until half of the client's time for other calls is left.
    assert_eq!(wait(None, Some(12_000), Some(3_000)), Ok(10_500));
    assert_eq!(wait(None, Some(60_000), Some(3_000)), Ok(20_000));
    assert_eq!(wait(None, None, None), Ok(20_000));
    // The deadline is kept, with time for the answer to travel.
    assert_eq!(wait(Some(20_000), Some(7_000), None), Ok(6_900));
    assert_eq!(wait(Some(5_000), Some(5_000), None), Ok(4_900));
    assert_eq!(wait(Some(5_000), Some(4_950), None), Ok(4_850), "some milliseconds were lost on the way");
    assert_eq!(wait(Some(5_000), Some(4_899), None), too_short);
    assert_eq!(wait(Some(20_000), Some(3_000), None), too_short);
    assert_eq!(wait(None, Some(0), None), too_short);
    let old = polling_ms(Some(&seconds(5)), Some(Duration::from_secs(3)), None, true, &config);
    assert_eq!(old.map_err(|problem| problem.code()), Err(waybill_protocol::grpc::v2::Code::BadRequest));
}

#[test]
fn leases_have_bounds() {
    let config = Config::default();
    let receive = |duration: Option<prost_types::Duration>| receive_invisible_ms(duration.as_ref(), &config);
    let change = |duration: Option<prost_types::Duration>| change_invisible_ms(duration.as_ref(), &config);
    let too_long = Problem::InvisibleTooLong(43_200_000);
    for (ms, wanted) in [
        (5_000, Err(Problem::InvisibleTooShort(10_000))),
        (9_999, Err(Problem::InvisibleTooShort(10_000))),
        (10_000, Ok(10_000)),
        (43_200_000, Ok(43_200_000)),
        (43_200_001, Err(too_long.clone())),
        (-1, Err(Problem::InvisibleTooShort(10_000))),
    ] {
        assert_eq!(receive(Some(millis(ms))), wanted, "{ms}");
    }
    assert_eq!(receive(None), Err(Problem::InvisibleTooShort(10_000)));
    assert_eq!(change(Some(seconds(0))), Ok(0));
    assert_eq!(change(None), Ok(0));
    assert_eq!(change(Some(millis(-1))), Err(Problem::InvisibleTooShort(0)));
    assert_eq!(change(Some(seconds(43_201))), Err(too_long.clone()));
    assert_eq!(change(Some(seconds(i64::MAX))), Err(too_long));
    assert_eq!(change(Some(seconds(i64::MIN))), Err(Problem::InvisibleTooShort(0)));
    assert_eq!(
        change(Some(prost_types::Duration { seconds: 1, nanos: i32::MIN })),
        Ok(0).and(Err(Problem::InvisibleTooShort(0)))
    );
}

#[test]
fn filters() {
    let filter = |kind: i32, text: &str| filter(Some(&FilterExpression { r#type: kind, expression: text.to_owned() }));
    let tag = |text: &str| Ok(Filter { kind: FilterKind::Tag, expression: text.to_owned() });
    assert_eq!(super::filter(None), tag("*"));
    assert_eq!(filter(1, ""), tag("*"));
    assert_eq!(filter(0, " * "), tag("*"));
    assert_eq!(filter(1, "A || B"), tag("A || B"));
    assert_eq!(filter(1, "||"), Err(Problem::Filter("no tag in it".to_owned())));
    assert_eq!(filter(2, "a > 5"), Ok(Filter { kind: FilterKind::Sql92, expression: "a > 5".to_owned() }));
    assert!(matches!(filter(2, "a >>> 5"), Err(Problem::Filter(told)) if told.contains("character 4")));
    assert_eq!(filter(3, "a"), Err(Problem::Filter("unknown type".to_owned())));
    assert_eq!(filter(1, &"a".repeat(limits::FILTER_BYTES + 1)), Err(Problem::Filter("too long".to_owned())));
}

#[test]
fn tags_are_compared_letter_by_letter() {
    let filter = |text: &str| Filter { kind: FilterKind::Tag, expression: text.to_owned() };
    assert!(wants_tag(&filter("*"), None));
    assert!(wants_tag(&filter(" A ||C "), Some("C")));
    // These two have the same Java hash.
    assert!(!wants_tag(&filter("AaAa"), Some("BBBB")));
    assert!(!wants_tag(&filter("A||B"), None));
    assert!(!wants_tag(&filter("A||B"), Some("A||B")));
    assert!(wants_tag(&Filter { kind: FilterKind::Sql92, expression: "x IS NULL".to_owned() }, None));
}

#[test]
fn what_a_batch_must_be() {
    assert_eq!(check(&[]), Err(Problem::NoMessage));
    assert_eq!(check(&[message(), message()]), Ok("t"));
    let other = Message { topic: Some(resource("u")), ..message() };
    assert_eq!(check(&[message(), other]), Err(Problem::TopicsDiffer));
    assert_eq!(check(&vec![message(); limits::SEND_MESSAGES]), Ok("t"));
    assert_eq!(check(&vec![message(); limits::SEND_MESSAGES + 1]), Err(Problem::TooManyMessages));
    let half = Message { body: vec![0; 2 * 1024 * 1024 + 1].into(), ..message() };
    assert_eq!(check(std::slice::from_ref(&half)), Ok("t"));
    assert_eq!(check(&[half.clone(), half]), Err(Problem::MessagesTooLarge(4_194_304)));
    let bad_second = Message { body: Default::default(), ..message() };
    assert_eq!(check(&[message(), bad_second]), Err(Problem::BodyEmpty));
}

#[test]
fn control_characters_are_nowhere() {
    for control in ['\u{0}', '\u{1}', '\u{2}', '\n', '\u{7f}', '\u{9f}'] {
        let text = format!("a{control}b");
        let t = || text.clone();
        assert_eq!(problem(with(|s| s.tag = Some(t()))), Some(Problem::TagControl));
        assert_eq!(problem(with(|s| s.keys = vec![t()])), Some(Problem::KeyControl));
        assert_eq!(problem(with(|s| s.message_group = Some(t()))), Some(Problem::MessageGroupControl));
        assert_eq!(problem(with(|s| s.message_id = t())), Some(Problem::MessageIdControl));
        assert_eq!(problem(with(|s| s.born_host = t())), Some(Problem::TextControl("born host")));
        assert_eq!(problem(with(|s| s.trace_context = Some(t()))), Some(Problem::TextControl("trace context")));
        let user = |key: String, value: String| Message { user_properties: [(key, value)].into(), ..message() };
        assert_eq!(problem(user(t(), "v".into())), Some(Problem::PropertyKeyControl));
        assert_eq!(problem(user("k".into(), t())), Some(Problem::PropertyValueControl));
    }
    assert_eq!(problem(with(|s| s.tag = Some("größe 中".into()))), None);
}

#[test]
fn reserved_properties() {
    for key in ["TAGS", "KEYS", "UNIQ_KEY", "POP_CK", "__SHARDINGKEY", "TRACE_CONTEXT", "DELAY", "__BORNHOST"] {
        let message = Message { user_properties: [(key.to_owned(), "v".to_owned())].into(), ..message() };
        assert_eq!(problem(message), Some(Problem::PropertyReserved(key.to_owned())));
    }
}

#[test]
fn sizes_of_properties() {
    let sized = |bytes: usize| with(|s| (s.tag, s.keys) = (Some("t".repeat(8)), vec!["k".repeat(bytes - 8)]));
    assert_eq!(problem(sized(16_384)), None);
    assert_eq!(problem(sized(16_385)), Some(Problem::UserPropertiesTooLarge(16_384)));
    let many = |count: usize| {
        let user_properties = (0..count).map(|n| (format!("k{n}"), String::new())).collect();
        Message { user_properties, ..message() }
    };
    assert_eq!(problem(many(128)), None);
    assert_eq!(problem(many(129)), Some(Problem::TooManyProperties(128)));
    assert_eq!(problem(with(|s| s.message_group = Some("g".repeat(63)))), None);
    assert_eq!(problem(with(|s| s.message_group = Some("g".repeat(64)))), Some(Problem::MessageGroupTooLong(64)));
    assert_eq!(problem(with(|s| s.message_group = Some("中".repeat(22)))), Some(Problem::MessageGroupTooLong(64)));
}

#[test]
fn a_limit_of_zero_is_none() {
    let free = Config {
        max_message_size: 0,
        enable_message_body_empty_check: false,
        max_user_property_size: -1,
        user_property_max_num: 0,
        max_message_group_size: 0,
        max_delay_time_ms: 0,
        max_transaction_recovery_seconds: 0,
        ..Config::default()
    };
    let mut large = with(|s| {
        s.message_group = Some("g".repeat(100));
        s.delivery_timestamp = Some(prost_types::Timestamp { seconds: 253_402_300_799, nanos: 0 });
        s.orphaned_transaction_recovery_duration = Some(seconds(9_999));
        s.keys = vec!["k".repeat(20_000)];
    });
    large.user_properties = (0..200).map(|n| (format!("k{n}"), String::new())).collect();
    large.body = vec![0; 5 * 1024 * 1024].into();
    let empty = Message { body: Default::default(), ..message() };
    for message in [large, empty] {
        assert_eq!(super::messages(&[message], &free, 0), Ok("t"));
    }
}

#[test]
fn delivery_times() {
    let at = |seconds: i64| with(|s| s.delivery_timestamp = Some(prost_types::Timestamp { seconds, nanos: 0 }));
    // Now is 1,000 s.
    assert_eq!(problem(at(1_000 + 86_400)), None);
    assert_eq!(problem(at(1_001 + 86_400)), Some(Problem::DeliveryTooFar(86_400_000)));
    for past in [0, -1, i64::MIN] {
        assert_eq!(problem(at(past)), None);
    }
    for far in [253_402_300_799, i64::MAX] {
        assert_eq!(problem(at(far)), Some(Problem::DeliveryTooFar(86_400_000)));
    }
    let recovery = |s: i64| with(|p| p.orphaned_transaction_recovery_duration = Some(seconds(s)));
    assert_eq!(problem(recovery(3_600)), None);
    assert_eq!(problem(recovery(3_601)), Some(Problem::RecoveryTooLong(3_600)));
}

#[test]
fn the_type_is_told_by_the_properties() {
    let of = |change: fn(&mut SystemProperties)| {
        let mut system = SystemProperties::default();
        change(&mut system);
        actual_type(&system)
    };
    assert_eq!(of(|_| ()), MessageType::Normal);
    assert_eq!(of(|s| s.set_message_type(MessageType::Fifo)), MessageType::Normal);
    assert_eq!(of(|s| s.message_group = Some("g".into())), MessageType::Fifo);
    assert_eq!(of(|s| s.message_group = Some(String::new())), MessageType::Normal);
    assert_eq!(of(|s| s.delivery_timestamp = Some(prost_types::Timestamp::default())), MessageType::Delay);
    assert_eq!(of(|s| s.set_message_type(MessageType::Transaction)), MessageType::Transaction);
    assert_eq!(of(|s| s.lite_topic = Some("l".into())), MessageType::Lite);
    assert_eq!(of(|s| s.priority = Some(1)), MessageType::Priority);
}

#[test]
fn handles() {
    assert!(handle("0 1700000000000 60000 0 0 broker-a 3 7 42").is_ok());
    for bad in ["", "x", "1 2 3", "a b c d e f g h", "0 1 2 3 9 b 0 0"] {
        assert!(matches!(handle(bad), Err(Problem::HandleMalformed(_))), "{bad}");
    }
    let long = format!("0 1 60000 0 0 {} 3 7", "b".repeat(limits::HANDLE_BYTES));
    assert!(matches!(handle(&long), Err(Problem::HandleMalformed(_))));
}

#[test]
fn endpoints_are_bounded() {
    use waybill_protocol::grpc::v2::Address;
    let of = |count: usize, host: usize| {
        let address = Address { host: "h".repeat(host), port: 1 };
        endpoints(Some(Endpoints { scheme: 1, addresses: vec![address; count] })).map(|found| found.addresses.len())
    };
    assert_eq!(endpoints(None), Ok(Endpoints::default()));
    assert_eq!(of(32, 255), Ok(32));
    assert_eq!(of(33, 1), Err(Problem::Endpoints("too many addresses")));
    assert_eq!(of(1, 256), Err(Problem::Endpoints("a host is too long")));
}
