//! What scripts rely on: exit codes, streams, the keys of the JSON, the same bytes every time.
//! Slow: many runs of the program.

use crate::support::{fixtures, program};
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use crate::support::program::{
    Ran, analyze, file, find, job, oomscope, pickled, refusal, result_of, run, run_with, text, with_details,
};
use crate::support::schema::list;
use serde_json::{Value, json};
use tempfile::TempDir;

const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";
const OOM: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";
const CONV: &str = "fixtures/2.15.0-conv_train.pickle.gz";
const TWO_DEVICES: &str = "fixtures/2.15.0-two_devices.pickle.gz";
const STREAMS: &str = "fixtures/2.15.0-streams-lag.pickle.gz";
const MAIN_EXAMPLE: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
const STATS: &str = "fixtures/2.15.0-holes.stats.json";

fn all_fixtures() -> Vec<String> {
    fixtures::names().iter().map(|name| format!("fixtures/{name}.pickle.gz")).collect()
}

/// `oomscope analyze ARGS EVERY-FIXTURE`
fn on_all_fixtures(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let paths = all_fixtures();
    let all: Vec<&str> = ["analyze"].iter().chain(args).copied().chain(paths.iter().map(String::as_str)).collect();
    run_with(&all, variables)
}

// Exit codes and refusals

#[test]
fn a_file_that_is_cut_short_is_refused_with_name_offset_and_whole_entries() {
    let directory = TempDir::new().unwrap();
    let whole = pickled(7, "the cut is here");
    let cut = find(&whole, "the cut is here");
    let err = refusal(&["analyze", &file(&directory, "rank7.pickle", &whole[..cut + 3])]);
    assert!(err.contains("rank7.pickle: "), "{err}");
    // The string's opcode and its four bytes of length stand before it.
    assert!(err.contains(&format!("(byte {}", cut - 5)), "{err}");
    assert!(err.contains("; 6 complete trace entries before it"), "{err}");
}

#[test]
fn every_refusal_names_the_file_and_the_reason() {
    let directory = TempDir::new().unwrap();
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let gz = fs::read(fixtures::path("2.15.0-holes")).unwrap();
    let cases = [
        (text(&directory.path().join("gone.pickle")), "cannot be read: "),
        (text(&empty), "holds no snapshot"),
        (file(&directory, "zero.pickle", b""), "is empty"),
        (file(&directory, "half.pickle.gz", &gz[..gz.len() / 2]), "damaged gzip"),
        (file(&directory, "code.pickle", b"cos\nsystem\n(S'true'\ntR."), "'os.system'"),
        (file(&directory, "code.pickle", b"cos\nsystem\n(S'true'\ntR."), "(byte 0"),
        (file(&directory, "model.pt", b"PK\x03\x04rest of a zip archive"), "zip archive"),
        (file(&directory, "text.pickle", b"hello"), "byte 0"),
        (file(&directory, "train.log", b"Traceback (most recent call last):\n"), "it is text"),
        (file(&directory, "run.log", b"2026-11-21 step 1\n"), "it is text"),
        (file(&directory, "half.json", b"{\"segments\": ["), "(byte 1"),
        (file(&directory, "other.json", b"{\"a\": 1}"), "is not a memory snapshot"),
        (STATS.to_owned(), "is not a memory snapshot"),
    ];
    for (path, words) in &cases {
        let err = refusal(&["analyze", path]);
        assert!(err.contains(path.as_str()) && err.contains(words), "{path}: {err}");
        if path != &text(&empty) {
            assert_eq!(refusal(&["replay", path]), err, "one sentence, whatever the command");
        }
    }
}

#[test]
fn wrong_usage_ends_with_2_before_anything_is_read() {
    let wrong: &[&[&str]] = &[
        &[],
        &["analyze"],
        &["replay"],
        &["analyse", HOLES],
        &["analyze", "--bogus", HOLES],
        &["analyze", "--top", "many", HOLES],
        &["analyze", "--top", "-1", HOLES],
        &["analyze", "--device", "cuda", HOLES],
        &["analyze", "--format", "xml", HOLES],
        &["analyze", HOLES, "-o"],
        &["run", "--bogus", "--", "true"],
        &["dry-run", "--bogus", "--", "true"],
        &["plan", "--bogus", "--", "true"],
        &["check", "--bogus", "--", "true"],
    ];
    for args in wrong {
        let Ran { code, out, err } = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains("'--help'") || err.contains("Usage: oomscope"), "{args:?}: {err}");
    }
}

// Input

#[test]
fn a_snapshot_is_the_same_plain_compressed_and_from_standard_input() {
    let directory = TempDir::new().unwrap();
    let plain = fixtures::pickle("2.15.0-holes-at-oom");
    let gz = fs::read(fixtures::path("2.15.0-holes-at-oom")).unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zst = ruzstd::encoding::compress_to_vec(plain.as_slice(), level);
    let told = |mut report: Value| {
        let snapshot = report["snapshots"][0].as_object_mut().unwrap();
        (snapshot.remove("path").unwrap(), snapshot.remove("size_bytes").unwrap(), report)
    };
    let (_, size, expected) = told(analyze(&[OOM]));
    assert_eq!(size, gz.len());
    for (name, bytes) in [("a.pickle", &plain), ("a.pkl.gz", &gz), ("a.bin", &zst)] {
        let path = file(&directory, name, bytes);
        let (named, size, report) = told(analyze(&[&path]));
        assert_eq!((named, size), (json!(path), json!(bytes.len())), "{name}");
        assert_eq!(report, expected, "{name}");

        let mut piped = oomscope(&["analyze", "-", "--format", "json"]);
        let output = piped.write_stdin(bytes.clone()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}");
        let (named, _, report) =
            told(crate::support::program::read_with_details(&String::from_utf8(output.stdout).unwrap()));
        assert_eq!((named, report), (json!("-"), expected.clone()), "{name}");
    }
}

// Output

#[test]
fn the_place_of_the_output_is_tried_before_the_work_and_holds_what_stdout_would() {
    let directory = TempDir::new().unwrap();
    let target = directory.path().join("out.json");
    let mut child = program::command()
        .args(["analyze", "-", "--format", "json", "-o", &text(&target)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut patience = 0;
    while fs::read_dir(directory.path()).unwrap().next().is_none() {
        assert!(patience < 4000, "nothing was created while the input was being waited for");
        patience += 1;
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!target.exists(), "not before it is whole");
    input.write_all(&fixtures::pickle("2.15.0-holes")).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());

    let piped =
        oomscope(&["analyze", "-", "--format", "json"]).write_stdin(fixtures::pickle("2.15.0-holes")).output().unwrap();
    assert_eq!(fs::read(&target).unwrap(), piped.stdout);
}

#[test]
fn an_earlier_result_stays_until_there_is_another() {
    let directory = TempDir::new().unwrap();
    let earlier = file(&directory, "page.txt", &[b'x'; 1 << 20]);
    for args in [["analyze", "-o"], ["replay", "-o"], ["replay", "--emit-snapshot"]] {
        refusal(&[&args[..], &[&earlier, "no/such/snapshot.pickle"]].concat());
        assert_eq!(fs::read(&earlier).unwrap().len(), 1 << 20, "{args:?}");
    }
    let snapshot = text(&fixtures::path("2.15.0-holes"));
    assert_eq!(run(&["analyze", &snapshot, "-o", &earlier]).code, 0);
    assert_eq!(fs::read_to_string(&earlier).unwrap(), result_of(&["analyze", &snapshot]));
}

#[test]
fn a_bad_output_path_fails_at_once() {
    let directory = TempDir::new().unwrap();
    let target = text(&directory.path().join("no/such/place"));
    let mut child = program::command()
        .args(["analyze", "-", "-o", &target])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Standard input stays open: the work could not even begin.
    let status = program::wait_briefly(&mut child).expect("waits for its input");
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(err.contains(&target) && err.contains("cannot be written"), "{err}");
}

/// Whoever reads it while it is written, and after a run that failed, finds what was there before.
#[test]
fn an_output_file_is_whole_or_absent() {
    let directory = TempDir::new().unwrap();
    let target = text(&directory.path().join("out.json"));
    let broken = file(&directory, "broken.pickle", b"no pickle");
    let alone = |name: &str| {
        let names = fs::read_dir(directory.path()).unwrap();
        let names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.iter().filter(|n| *n != "broken.pickle").all(|n| n == name)
    };
    assert_eq!(run(&["analyze", &broken, "-o", &target]).code, 2);
    assert!(alone("nothing"), "a failed run leaves nothing");

    let writer = |top: &str| {
        let args = ["analyze", "--format", "json", "--top", top, "-o", &target, HOLES];
        program::command().args(args).stdin(Stdio::null()).spawn().unwrap()
    };
    for _ in 0..8 {
        let mut writers = ["1", "50", "5", "200"].map(writer);
        while writers.iter_mut().any(|one| one.try_wait().unwrap().is_none()) {
            if let Ok(seen) = fs::read(&target) {
                serde_json::from_slice::<Value>(&seen).unwrap();
            }
        }
    }
    assert!(alone("out.json"));
    let before = fs::read(&target).unwrap();
    assert_eq!(run(&["analyze", &broken, "-o", &target]).code, 2);
    assert_eq!(fs::read(&target).unwrap(), before);

    let emitted = text(&directory.path().join("out.pickle"));
    let args = ["replay", "--set", "expandable_segments:True", HOLES, "--emit-snapshot", &emitted];
    assert_eq!(refusal(&[&args[..], &["-o", &emitted]].concat()).matches("name two files").count(), 1);
    assert!(!fs::exists(&emitted).unwrap());
}

#[cfg(unix)]
#[test]
fn a_link_stays_one_and_a_file_keeps_who_may_read_it() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("real.json"), "before").unwrap();
    fs::set_permissions(path("real.json"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.json", path("link.json")).unwrap();
    let written = |name| run(&["analyze", "--format", "json", "-o", &text(&path(name)), HOLES]);
    assert_eq!(written("link.json").code, 0);
    assert!(path("link.json").is_symlink() && fs::read(path("real.json")).unwrap().len() > 100);
    symlink("later.json", path("dangling.json")).unwrap();
    assert_eq!(written("dangling.json").code, 0);
    assert!(path("dangling.json").is_symlink() && fs::read(path("later.json")).unwrap().len() > 100);
    let mode = |name| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("real.json"), 0o640);
    assert_eq!(written("new.json").code, 0);
    fs::write(path("plain"), "").unwrap();
    assert_eq!(mode("new.json"), mode("plain"), "as any program's");
}

#[test]
fn the_output_file_is_never_an_input() {
    let directory = TempDir::new().unwrap();
    let job = job(&directory);
    let report = text(&job.join("report.json"));
    for _ in 0..2 {
        let ran = run(&["analyze", "--format", "json", &text(&job), "-o", &report]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let snapshot = text(&job.join("rank_0.pickle.gz"));
    let before = fs::read(&snapshot).unwrap();
    refusal(&["analyze", &snapshot, "-o", &snapshot]);
    let linked = text(&directory.path().join("linked"));
    fs::hard_link(&snapshot, &linked).unwrap();
    refusal(&["analyze", &snapshot, "-o", &linked]);
    assert!(refusal(&["analyze", "-", "-"]).contains("only once"));
    // Nor is it a snapshot among others for the next run.
    assert_eq!(run(&["analyze", &text(&job)]).code, 0);
    assert!(refusal(&["analyze", &report]).contains("it is a report of oomscope"));
    // A rank in a directory is a snapshot too, and no result.
    let rank = text(&job.join("rank_0.pickle.gz"));
    for args in [&["analyze"][..], &["check", "--max-ooms", "0"]] {
        let said = refusal(&[args, &[&text(&job), "-o", &rank]].concat());
        assert!(said.contains("rank_0.pickle.gz: is an input"), "{said}");
    }
    assert_eq!(fs::read(&rank).unwrap(), fs::read(fixtures::path("2.15.0-holes")).unwrap());
    assert!(fs::read(&snapshot).unwrap() == before, "the snapshot is lost");
}

#[test]
fn colour_follows_the_environment_and_goes_to_no_file() {
    let escape = '\x1b';
    let args = ["analyze", OOM];
    let plain = result_of(&args);
    assert!(!plain.contains(escape));
    assert!(run_with(&args, &[("CLICOLOR_FORCE", "1")]).out.contains(escape));
    for variables in [
        &[("NO_COLOR", "1")][..],
        &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")],
        &[("TERM", "dumb")],
        &[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")],
    ] {
        assert!(run_with(&args, variables).out == plain, "{variables:?}");
    }
    for format in ["json", "markdown"] {
        let ran = run_with(&["analyze", OOM, "--format", format], &[("CLICOLOR_FORCE", "1")]);
        assert!(!ran.out.contains(escape), "{format}");
    }
    let directory = TempDir::new().unwrap();
    let target = text(&directory.path().join("page.txt"));
    assert_eq!(run_with(&["analyze", OOM, "-o", &target], &[("CLICOLOR_FORCE", "1")]).code, 0);
    assert!(fs::read_to_string(&target).unwrap() == plain);
}

#[test]
fn an_ascii_locale_gets_ascii() {
    for variables in [[("LC_ALL", "C")], [("LC_CTYPE", "POSIX")], [("LANG", "en_US.ISO-8859-1")]] {
        let ran = run_with(&["analyze", OOM], &variables);
        assert!(ran.code == 0 && ran.out.is_ascii(), "{variables:?}");
    }
    assert!(on_all_fixtures(&[], &[("LC_ALL", "C")]).out.is_ascii());
    for variables in [[("LC_ALL", "de_DE.UTF-8")], [("LANG", "C.utf8")]] {
        assert!(run_with(&["analyze", OOM], &variables).out == result_of(&["analyze", OOM]));
    }
}

#[test]
fn a_closed_pipe_is_success() {
    let paths = [HOLES; 60];
    for format in ["human", "json", "markdown"] {
        let mut child = program::command()
            .args(["analyze", "--format", format])
            .args(paths)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 10]).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && err.is_empty(), "{format}: {} {err}", output.status);
    }
}

// JSON

#[test]
fn pools_and_streams_are_sums_of_their_parts() {
    for name in fixtures::names() {
        let report = with_details(serde_json::to_value(fixtures::report(&name)).unwrap());
        for device in list(&report["devices"]) {
            for space in list(&device["pools"]).iter().chain(list(&device["streams"])) {
                let parts =
                    ["allocated_bytes", "pending_bytes", "inactive_bytes"].map(|key| space[key].as_u64().unwrap());
                assert_eq!(space["reserved_bytes"], parts.iter().sum::<u64>(), "{name}: {space}");
            }
        }
    }
}

#[test]
fn the_json_is_the_same_bytes_every_time_and_on_any_number_of_threads() {
    let args = ["analyze", "--format", "json", MAIN_EXAMPLE, OOM, HOLES, STREAMS, TWO_DEVICES, CONV];
    let expected = result_of(&args);
    for threads in ["1", "7"] {
        let ran = run_with(&args, &[("RAYON_NUM_THREADS", threads)]);
        assert!(ran.out == expected, "differs on {threads} threads");
    }
}
