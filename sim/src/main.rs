//! Runs seeds, each in a process of its own.

mod seen;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use parking_lot::Mutex;
use waybill_sim::museum::Bug;

use seen::Seen;
use waybill_sim::run::run;

/// So many seeds are enough to see everything.
const ENOUGH: u64 = 1_000;

/// Runs the real broker and the real sidecar under simulated time, network and disk.
#[derive(Parser)]
struct Args {
    /// One seed: its trace goes to standard output.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds from A up to, but without, B.
    #[arg(long, value_parser = range, value_name = "A..B")]
    seeds: Option<std::ops::Range<u64>>,
    /// A bug of the field to put in.
    #[arg(long)]
    bug: Option<Bug>,
    /// Runs at the same time; 0 = one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Where the traces of failed runs go.
    #[arg(long, default_value = "target/sim")]
    traces: PathBuf,
    /// Ends with the first failure.
    #[arg(long)]
    first: bool,
    /// Only tells how it ended.
    #[arg(long)]
    quiet: bool,
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    match (args.seed, args.seeds.clone()) {
        (Some(seed), _) => one(seed, &args),
        (None, seeds) => many(seeds.unwrap_or(0..100), &args),
    }
}

/// One run in this process.
fn one(seed: u64, args: &Args) -> ExitCode {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_default_env() {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let report = run(seed, args.bug, &base.join(format!("waybill-sim-{}", std::process::id())));
    let mut out = std::io::stdout().lock();
    let mut text = if args.quiet { String::new() } else { report.trace };
    for violation in &report.violations {
        text.push_str(&format!("BROKEN {violation}\n"));
    }
    text.push_str(&format!("{}\n", report.counted));
    // Nobody reads it any more: nothing to do about that.
    let _ = out.write_all(text.as_bytes());
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Many runs, each in a process of its own: what a process keeps between runs would make the second differ from the first.
fn many(seeds: std::ops::Range<u64>, args: &Args) -> ExitCode {
    let began = Instant::now();
    let program = std::env::current_exe().expect("this program");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if args.jobs == 0 { processors } else { args.jobs };
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let failed: Mutex<Vec<u64>> = Mutex::default();
    let seen: Mutex<Seen> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end {
                        return;
                    }
                    if !child(&program, seed, args, &seen) {
                        failed.lock().push(seed);
                        stop.fetch_or(args.first, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.sort_unstable();
    let ran = next.load(Ordering::SeqCst).min(seeds.end) - seeds.start;
    println!(
        "{ran} seeds from {} in {:.1} s, {} failed: {failed:?}",
        seeds.start,
        began.elapsed().as_secs_f64(),
        failed.len()
    );
    let seen = seen.into_inner();
    println!("seeds that saw: {}", seen.told());
    let missed = if args.bug.is_none() && ran >= ENOUGH { seen.missed() } else { Vec::new() };
    if !missed.is_empty() {
        println!("no seed saw any of: {}", missed.join(", "));
    }
    println!("{} passed, {} failed", ran - failed.len() as u64, failed.len());
    if failed.is_empty() && missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One run in another process. Whether every promise was kept.
fn child(program: &Path, seed: u64, args: &Args, seen: &Mutex<Seen>) -> bool {
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string()]).stdin(Stdio::null());
    if let Some(name) = args.bug.and_then(|bug| bug.to_possible_value()) {
        command.args(["--bug", name.get_name()]);
    }
    let output = command.output().expect("this program runs");
    if output.status.success() {
        seen.lock().add(String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default());
        return true;
    }
    std::fs::create_dir_all(&args.traces).expect("a directory for traces");
    let file = args.traces.join(format!("seed-{seed}.trace"));
    std::fs::write(&file, [output.stdout.as_slice(), output.stderr.as_slice()].concat()).expect("a trace");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("seed {seed} FAILED, see {}", file.display());
    for line in text.lines().filter(|line| line.starts_with("BROKEN")).take(5) {
        println!("    {line}");
    }
    for line in String::from_utf8_lossy(&output.stderr).lines().take(5) {
        println!("    {line}");
    }
    false
}
