//! Frames in both forms of header.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, DEFAULT_MAX_FRAME, ExtFields, FrameError, Language, MAX_EXT_FIELDS, SerializeType, VERSION, decode,
    encode, encode_head,
};

fn frame(kind: u8, head: &[u8], body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.extend_from_slice(&u32::try_from(4 + head.len() + body.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&(u32::from(kind) << 24 | u32::try_from(head.len()).unwrap()).to_be_bytes());
    out.extend_from_slice(head);
    out.extend_from_slice(body);
    out
}

fn json(head: &str) -> Result<Command, FrameError> {
    decode(&mut frame(0, head.as_bytes(), b""), DEFAULT_MAX_FRAME).map(Option::unwrap)
}

fn bytes(command: &Command) -> BytesMut {
    let mut out = BytesMut::new();
    encode(command, &mut out);
    out
}

#[test]
fn json_form_byte_for_byte() {
    let mut command = Command::request(request::SEND_MESSAGE_V2).with_body("hi".as_bytes());
    command.opaque = -7;
    command.remark = Some("a \"b\" \\ \n\t\u{8}\u{c}\u{1}\u{1f} ü".to_owned());
    command.ext.set("i", "K\u{1}V\u{2}");
    command.ext.set("n", "");
    let head = r#"{"code":310,"extFields":{"i":"K\u0001V\u0002","n":""},"flag":0,"language":"RUST","opaque":-7,"remark":"a \"b\" \\ \n\t\b\f\u0001\u001F ü","serializeTypeCurrentRPC":"JSON","version":475}"#;
    assert_eq!(bytes(&command), frame(0, head.as_bytes(), b"hi"));
    assert_eq!(decode(&mut bytes(&command), DEFAULT_MAX_FRAME), Ok(Some(command)));
}

#[test]
fn binary_form_byte_for_byte() {
    let mut command = Command::response(17, "gone").with_body(Bytes::from_static(b"body"));
    command.serialize = SerializeType::RocketMq;
    command.language = Language::Java;
    command.version = 0x0102;
    command.opaque = 0x0A0B_0C0D;
    command.ext.set("key", "value");
    command.ext.set("e", "");
    let mut head = vec![0, 17, 0, 1, 2, 0x0A, 0x0B, 0x0C, 0x0D, 0, 0, 0, 1];
    head.extend_from_slice(b"\0\0\0\x04gone");
    head.extend_from_slice(b"\0\0\0\x15\0\x03key\0\0\0\x05value\0\x01e\0\0\0\0");
    assert_eq!(bytes(&command), frame(1, &head, b"body"));
    assert_eq!(decode(&mut bytes(&command), DEFAULT_MAX_FRAME), Ok(Some(command)));
}

#[test]
fn json_that_others_write() {
    let command = json(
        r#" { "version" : 1, "extFields" : { "a" : 5, "b":true, "c":null, "d":-1, "a":"x\u00fc", "e":18446744073709551615 },
             "unknown" : [ { "deep" : [ 1.5 ] } ], "language" : "COBOL", "code" : 11, "remark" : null } "#,
    );
    let command = command.unwrap();
    assert_eq!((command.code, command.version, command.opaque, command.flag), (11, 1, 0, 0));
    assert_eq!(command.language, Language::Other);
    assert_eq!(command.remark, None);
    let fields: Vec<_> = command.ext.iter().collect();
    assert_eq!(fields, [("a", "xü"), ("b", "true"), ("d", "-1"), ("e", "18446744073709551615")]);

    let bare = json("{}").unwrap();
    assert_eq!((bare.code, bare.language, bare.version), (0, Language::Other, 0));
    assert_eq!(json(r#"{"extFields":null,"language":9}"#).unwrap().language, Language::Go);
}

#[test]
fn json_that_is_none() {
    for bad in [
        "",
        "null",
        "[]",
        "{",
        r#"{"code":"x"}"#,
        r#"{"code":1.5}"#,
        r#"{"code":2147483648}"#,
        r#"{"extFields":[]}"#,
        r#"{"extFields":{"a":[]}}"#,
        r#"{"extFields":{"a":1.5}}"#,
        r#"{"code":1}x"#,
        "{\"remark\":\"\u{1}\"}",
    ] {
        assert!(matches!(json(bad), Err(FrameError::Json(_))), "{bad}");
    }
    let not_utf8 = decode(&mut frame(0, b"{\"remark\":\"\xFF\"}", b""), DEFAULT_MAX_FRAME);
    assert!(matches!(not_utf8, Err(FrameError::Json(_))), "{not_utf8:?}");
    let deep = format!(r#"{{"x":{}"#, "[".repeat(100_000));
    assert!(matches!(json(&deep), Err(FrameError::Json(_))), "depth must not exhaust the stack");
}

#[test]
fn lengths_that_lie_are_refused_at_once() {
    let lie = |bytes: &[u8]| decode(&mut BytesMut::from(bytes), DEFAULT_MAX_FRAME);
    assert_eq!(lie(&[0xFF; 4]), Err(FrameError::BadLength(-1)));
    assert_eq!(lie(&[0x80, 0, 0, 0]), Err(FrameError::BadLength(i32::MIN)));
    assert_eq!(lie(&[0, 0, 0, 3]), Err(FrameError::BadLength(3)));
    let too_large = FrameError::TooLarge { length: (1 << 31) + 3, limit: DEFAULT_MAX_FRAME };
    assert_eq!(lie(&[0x7F, 0xFF, 0xFF, 0xFF]), Err(too_large));
    // The limit counts the length field.
    assert_eq!(lie(&[0, 0xFF, 0xFF, 0xFC, 0]), Ok(None));
    assert!(lie(&[0, 0xFF, 0xFF, 0xFD, 0]).is_err());
    // Type and length of the header are judged before the frame is whole.
    assert_eq!(lie(&[0, 0, 0, 9, 0, 0, 0, 6]), Err(FrameError::BadHeaderLength { header: 6, room: 5 }));
    assert_eq!(lie(&[0, 0, 0, 9, 2, 0, 0, 5]), Err(FrameError::UnknownSerializeType(2)));
    assert_eq!(lie(&[0x16, 3, 1, 0]), Err(FrameError::TooLarge { length: 0x1603_0104, limit: DEFAULT_MAX_FRAME }));
}

#[test]
fn binary_lengths_that_lie() {
    let mut good = Command::request(34);
    good.serialize = SerializeType::RocketMq;
    good.remark = Some("r".to_owned());
    good.ext.set("key", "value");
    let head = bytes(&good).split_off(8);
    // Offsets of: remark length, section length, name length, value length.
    for (at, width) in [(13, 4), (18, 4), (22, 2), (27, 4)] {
        for lie in [[0xFF; 4], [0x7F, 0xFF, 0xFF, 0xFF], [0x80, 0, 0, 0], [0x00, 0x7F, 0xFF, 0xFF]] {
            let mut bad = head.to_vec();
            bad[at..at + width].copy_from_slice(&lie[..width]);
            let read = decode(&mut frame(1, &bad, b""), DEFAULT_MAX_FRAME);
            assert!(matches!(read, Err(FrameError::Binary(_))), "{at} {lie:?}: {read:?}");
        }
    }
    for end in 0..head.len() {
        let read = decode(&mut frame(1, &head[..end], b""), DEFAULT_MAX_FRAME);
        assert!(matches!(read, Err(FrameError::Binary(_))), "cut at {end}: {read:?}");
    }
}

#[test]
fn too_many_fields_are_refused_in_both_forms() {
    for serialize in [SerializeType::Json, SerializeType::RocketMq] {
        let mut command = Command::request(1);
        command.serialize = serialize;
        command.ext = (0..MAX_EXT_FIELDS).map(|n| (n.to_string(), "v")).collect();
        assert_eq!(decode(&mut bytes(&command), DEFAULT_MAX_FRAME).unwrap().unwrap(), command);
        command.ext.set("one more", "v");
        assert_eq!(decode(&mut bytes(&command), DEFAULT_MAX_FRAME), Err(FrameError::TooManyFields));
    }
}

#[test]
fn a_header_too_long_keeps_the_stream_readable() {
    for serialize in [SerializeType::Json, SerializeType::RocketMq] {
        let mut command = Command::request(310).with_body("body".as_bytes());
        command.serialize = serialize;
        command.opaque = 99;
        command.ext.set("i", "x".repeat(1 << 24));
        let mut stream = bytes(&command);
        encode(&Command::request(34), &mut stream);
        let first = decode(&mut stream, usize::MAX).unwrap().unwrap();
        assert_eq!((first.code, first.opaque, &first.body[..]), (310, 99, &b"body"[..]));
        assert!(first.ext.is_empty());
        assert_eq!(decode(&mut stream, usize::MAX).unwrap().unwrap().code, 34);
    }
}

#[test]
fn a_name_too_long_for_the_binary_form_is_sent_as_json() {
    let mut command = Command::request(310);
    command.serialize = SerializeType::RocketMq;
    command.ext.set(&"n".repeat(40_000), "v");
    let read = decode(&mut bytes(&command), DEFAULT_MAX_FRAME).unwrap().unwrap();
    assert_eq!(read.serialize, SerializeType::Json);
    assert_eq!(read.ext, command.ext);
}

#[test]
fn codes_that_a_binary_header_cuts_come_back() {
    let mut pop = Command::request(request::POP_MESSAGE);
    pop.serialize = SerializeType::RocketMq;
    let written = bytes(&pop);
    assert_eq!(written[8..10], 3442i16.to_be_bytes());
    assert_eq!(decode(&mut written.clone(), DEFAULT_MAX_FRAME).unwrap().unwrap().code, request::POP_MESSAGE);
    let answer = Command::response(3442, "").reply_to(&pop);
    assert_eq!(decode(&mut bytes(&answer), DEFAULT_MAX_FRAME).unwrap().unwrap().code, 3442, "only requests");
}

#[test]
fn a_reply_takes_over_what_it_must() {
    let mut asked = Command::request(request::HEART_BEAT).oneway();
    asked.opaque = 5;
    asked.serialize = SerializeType::RocketMq;
    assert!(asked.is_oneway() && !asked.is_response());
    let reply = Command::response(response::SUCCESS, "").reply_to(&asked);
    assert_eq!((reply.opaque, reply.serialize, reply.version), (5, SerializeType::RocketMq, VERSION));
    assert_eq!(reply.remark, None, "an empty remark is none");
    assert!(reply.is_response() && !reply.is_oneway());
}

#[test]
fn the_body_is_not_copied() {
    let mut buf = bytes(&Command::request(1).with_body(vec![7; 5_000]));
    let range = buf.as_ptr_range();
    let command = decode(&mut buf, DEFAULT_MAX_FRAME).unwrap().unwrap();
    assert!(range.contains(&command.body.as_ptr()));
}

fn any_command() -> impl Strategy<Value = Command> {
    let ext = proptest::collection::vec((any::<String>(), any::<String>()), 0..12);
    let numbers = (any::<i32>(), 0u8..14, any::<i32>(), any::<i32>(), any::<i32>());
    let body = proptest::collection::vec(any::<u8>(), 0..300);
    (numbers, proptest::option::of("\\PC+|.{1,40}"), ext, body, any::<bool>()).prop_map(
        |((code, language, version, opaque, flag), remark, ext, body, binary)| {
            let mut command = Command::request(code).with_body(body);
            command.language = Language::from_number(language);
            (command.version, command.opaque, command.flag) = (version, opaque, flag);
            command.remark = remark;
            command.ext = ext.into_iter().collect::<ExtFields>();
            if binary {
                command.serialize = SerializeType::RocketMq;
                command.code = i32::from(code as i16);
                command.version = i32::from(version as i16);
            }
            command
        },
    )
}

proptest! {
    #[test]
    fn frames_go_there_and_back(commands in proptest::collection::vec(any_command(), 1..5), cut in any::<prop::sample::Index>()) {
        let mut stream = BytesMut::new();
        for command in &commands {
            let start = stream.len();
            encode(command, &mut stream);
            let mut head = BytesMut::new();
            encode_head(command, &mut head);
            head.extend_from_slice(&command.body);
            prop_assert_eq!(&head[..], &stream[start..], "head and body apart are the same");
        }
        // The bytes arrive in two pieces.
        let late = stream.split_off(cut.index(stream.len() + 1));
        let mut read = Vec::new();
        while let Some(command) = decode(&mut stream, DEFAULT_MAX_FRAME).unwrap() {
            read.push(command);
        }
        stream.extend_from_slice(&late);
        while let Some(command) = decode(&mut stream, DEFAULT_MAX_FRAME).unwrap() {
            read.push(command);
        }
        prop_assert!(stream.is_empty());
        let expected: Vec<_> = commands.into_iter().map(|mut c| {
            if c.serialize == SerializeType::RocketMq && !c.is_response() {
                c.code = waybill_protocol::remoting::codes::canonical(c.code);
            }
            c
        }).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..2) {
        let _ = decode(&mut BytesMut::from(&data[..]), DEFAULT_MAX_FRAME);
        let _ = decode(&mut frame(kind, &data, b""), DEFAULT_MAX_FRAME);
    }
}
