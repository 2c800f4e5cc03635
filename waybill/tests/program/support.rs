//! Starts `waybill standalone` and runs `waybill` against it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_waybill");

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Configuration of the sidecar, unless a test has its own: a disk that stands still for some seconds is no fault.
const PATIENT: &str = "backendRequestTimeoutMillis: 60000\n";

/// A standalone Waybill on free ports. Killed when it is dropped without having been stopped.
pub(crate) struct Standalone {
    child: Child,
    pub(crate) endpoint: String,
    pub(crate) broker: String,
    pub(crate) admin: String,
    log: PathBuf,
}

impl Drop for Standalone {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the log of the server:\n{}", self.log());
        }
    }
}

/// The options of a standalone Waybill that keeps its data in `dir` and takes free ports.
pub(crate) fn options(dir: &Path) -> Vec<String> {
    options_at("127.0.0.1:0", dir)
}

fn options_at(free: &str, dir: &Path) -> Vec<String> {
    let dir = dir.join("data").display().to_string();
    ["standalone", "--output", "json", "--listen", free, "--broker-listen", free, "--admin-listen", free, "--data-dir"]
        .iter()
        .map(|word| (*word).to_owned())
        .chain([dir])
        .collect()
}

impl Standalone {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        Self::spawn(Command::new(PROGRAM), &options(dir), dir, more)
    }

    /// The same with all its ports at `free`, an address whose port is 0.
    pub(crate) fn start_at(free: &str, dir: &Path) -> Self {
        Self::spawn(Command::new(PROGRAM), &options_at(free, dir), dir, &[])
    }

    /// The same with its data on a disk of `mib` MiB that only this process sees.
    pub(crate) fn start_on_small_disk(dir: &Path, mib: u32, more: &[&str]) -> Self {
        let data = dir.join("data");
        std::fs::create_dir_all(&data).expect("a directory");
        let mut command = on_small_disk(&data, mib);
        command.arg(PROGRAM);
        Self::spawn(command, &options(dir), dir, more)
    }

    /// A path as the server sees it.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.pid())).join(path.strip_prefix("/").expect("an absolute path"))
    }

    fn spawn(mut command: Command, options: &[String], dir: &Path, more: &[&str]) -> Self {
        let log = dir.join("log");
        let patient = dir.join("patient.yaml");
        std::fs::write(&patient, PATIENT).expect("a file");
        command.args(options);
        if !more.contains(&"--sidecar-config") {
            command.arg("--sidecar-config").arg(&patient);
        }
        let mut child = command
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).expect("a file for its log"))
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        let text = |key: &str| said[key].as_str().expect("an address").to_owned();
        Self { child, endpoint: text("endpoint"), broker: text("broker"), admin: text("admin"), log }
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// SIGTERM; the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let killed = Command::new("kill").args(["-TERM", &self.pid()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        self.child.wait().expect("it ends").code()
    }

    /// Runs a command that talks to the broker.
    pub(crate) fn admin(&self, words: &[&str]) -> Ran {
        run(&[words, &["--broker", &self.broker]].concat())
    }

    /// Runs a command that talks to the endpoint.
    pub(crate) fn client(&self, words: &[&str]) -> Ran {
        run(&[words, &["--endpoint", &self.endpoint]].concat())
    }

    /// The body of a page of the admin port.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(&self.admin).expect("connect");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        body.to_owned()
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Runs the program that is added to it with a disk of `mib` MiB at `at`, in a mount namespace of its own.
fn on_small_disk(at: &Path, mib: u32) -> Command {
    let mut command = Command::new("unshare");
    let user = Command::new("id").arg("-u").output().expect("id runs").stdout;
    if user.trim_ascii() != b"0" {
        command.arg("--map-root-user");
    }
    let script = format!("mount -t tmpfs -o size={mib}m small \"$0\" && exec \"$@\"");
    command.args(["--mount", "sh", "-c", &script]).arg(at);
    command
}

/// Whether this machine lets a test have a disk of its own: it takes root or user namespaces, which containers often refuse. Says
/// so if it does not.
pub(crate) fn small_disks_can_be_had() -> bool {
    let at = Dir::new();
    let said = match on_small_disk(at.path(), 1).arg("true").output() {
        Ok(ran) if ran.status.success() => return true,
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    println!("SKIPPED: no disk of its own can be mounted here: {}", said.trim());
    false
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the program and sends it a signal as soon as it listens for it, as the first process of a container must; its exit code.
pub(crate) fn run_and_end(words: &[&str], signal: u32) -> Option<i32> {
    let mut command = Command::new(PROGRAM);
    // Its standard input stays open and empty.
    let mut child = command.args(words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    until("it listens for the signal", || {
        let status = std::fs::read_to_string(&status).expect("its status");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the signals that it catches");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & (1 << (signal - 1)) != 0
    });
    let killed = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    child.wait().expect("it ends").code()
}

/// Runs the program with nothing on its standard input.
pub(crate) fn run(words: &[&str]) -> Ran {
    let Output { status, stdout, stderr } =
        Command::new(PROGRAM).args(words).stdin(Stdio::null()).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: status.code(), out: text(stdout), err: text(stderr) }
}

impl Ran {
    /// It must have succeeded.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self
    }

    /// What it printed, as JSON; it must have succeeded.
    pub(crate) fn json(self) -> Value {
        let ran = self.ok();
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error} in {}", ran.out))
    }

    /// It must have failed so, and said all of this.
    pub(crate) fn fails(&self, code: i32, said: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        for wanted in said {
            assert!(self.err.contains(wanted), "{wanted:?} is missing in {:?}", self.err);
        }
    }
}

/// A directory of the test's own.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}
