//! The program itself: its command line, its exit codes, its signals.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_waybill-sidecar");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).env_remove("NAMESRV_ADDR").env_remove("RUST_LOG").output().expect("runs")
}

fn refused(code: i32, arguments: &[&str], parts: &[&str]) {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

#[test]
fn a_mistake_in_the_configuration_ends_it_with_64_and_what_to_do() {
    refused(64, &[], &["namesrvAddr", "--namesrv-addr 127.0.0.1:9876"]);
    refused(64, &["--config", "/nowhere/sidecar.yaml"], &["/nowhere/sidecar.yaml"]);
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("sidecar.yaml");
    std::fs::write(&path, "namesrvAddr: a:1\nrenewAheadTimeMilis: 5\n").expect("write");
    refused(
        64,
        &["--config", path.to_str().expect("utf-8")],
        &["line 2", "renewAheadTimeMilis", "did you mean renewAheadTimeMillis?", "docs/configuration-sidecar.md"],
    );
    std::fs::write(&path, "namesrvAddr: a:1\ntlsCertPath: /nowhere/c\ntlsKeyPath: /nowhere/k\n").expect("write");
    let listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let arguments = [&["--config", path.to_str().expect("utf-8")], &listen[..]].concat();
    refused(64, &arguments, &["/nowhere/c", "tlsCertPath"]);
}

#[test]
fn wrong_usage_ends_it_with_2() {
    refused(2, &["--bogus"], &["--bogus", "--help"]);
    refused(2, &["--listen", "somewhere"], &["--listen"]);
    refused(2, &["--namesrv-addr", "localhost"], &["--namesrv-addr", "host:port"]);
}

#[test]
fn help_and_documentation_go_to_standard_output() {
    for (argument, wanted) in
        [("--help", "--namesrv-addr"), ("--version", "waybill-sidecar"), ("--print-config-docs", "| `namesrvAddr` |")]
    {
        let output = run(&[argument]);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains(wanted), "{argument}");
    }
}

#[test]
fn it_serves_until_it_is_told_to_stop() {
    let mut child = Command::new(PROGRAM)
        .args(["--namesrv-addr", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let serving = lines.by_ref().find(|line| line.as_ref().is_ok_and(|line| line.contains("serving clients")));
    assert!(serving.is_some());
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(told.success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("drained")), "{rest:?}");
}
