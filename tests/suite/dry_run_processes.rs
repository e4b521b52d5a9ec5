//! The processes of a dry run: those that share a GPU, and those that left no recording.

use serde_json::{Value, json};

use super::check_ci::Project;
use super::check_command::holding;
use crate::support::program::{analyze, file};

/// A process that reserves memory from `start_s` to `end_s`.
fn process(pid: u64, mib: u64, start_s: u64, end_s: u64) -> Value {
    let mut recording = holding(mib, 7);
    for entry in recording["device_traces"][0].as_array_mut().unwrap() {
        entry["time_us"] = json!(start_s * 1_000_000 + entry["time_us"].as_u64().unwrap() / 100);
    }
    let noted = json!({ "host": "vm", "pid": pid, "time_us": end_s * 1_000_000 });
    recording["oomscope"].as_object_mut().unwrap().extend(noted.as_object().unwrap().clone());
    recording
}

fn with(mut recording: Value, key: &str, value: Value) -> Value {
    recording["oomscope"][key] = value;
    recording
}

/// The verdict on a job, and its reason.
fn verdict(processes: &[Value]) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let paths = processes.iter().enumerate().map(|(index, recording)| {
        file(&directory, &format!("vm-pid{index}-exit1.json"), recording.to_string().as_bytes())
    });
    let paths: Vec<String> = paths.collect();
    let report = analyze(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let text = |key: &str| report["dry_run"][key].as_str().unwrap().to_owned();
    (text("verdict"), text("reason"))
}

/// The GPU has 22,589 MiB, of which each process has 260 MiB for its context.
#[test]
fn processes_on_one_gpu_are_summed_by_their_clocks() {
    let first = || process(1, 12_000, 10, 20);
    let (both, why) = verdict(&[first(), process(2, 12_000, 15, 25)]);
    assert_eq!(both, "would-not-fit");
    assert!(
        why.contains("process 1 (12.0 GiB), process 2 (12.0 GiB)") && why.contains("GPU 0 at the same time"),
        "{why}"
    );
    for (second, expected) in [
        // One after the other.
        (process(2, 12_000, 20, 25), "would-fit"),
        (process(2, 12_000, 1, 10), "would-fit"),
        // Together they fit, to the MiB.
        (process(2, 22_589 - 12_000 - 2 * 260, 15, 25), "would-fit"),
        (process(2, 22_589 - 12_000 - 2 * 260 + 1, 15, 25), "would-not-fit"),
        // Not one GPU.
        (with(process(2, 12_000, 15, 25), "host", json!("other")), "would-fit"),
        // When is not known.
        (with(process(2, 12_000, 15, 25), "time_us", Value::Null), "may-fit"),
    ] {
        assert_eq!(verdict(&[first(), second.clone()]).0, expected, "{second}");
    }
    let visible = |pid, list: &str| with(process(pid, 12_000, 10, 20), "visible_devices", json!(list));
    assert_eq!(verdict(&[visible(1, "0"), visible(2, "1")]).0, "would-fit");
    assert_eq!(verdict(&[visible(1, "3"), visible(2, "3,1")]).0, "would-not-fit");
    let (_, unknown) = verdict(&[first(), with(process(2, 12_000, 15, 25), "time_us", Value::Null)]);
    assert!(unknown.contains("when is not known") && unknown.contains("process 2 (12.0 GiB)"), "{unknown}");
    // Its own failure says more.
    let mut failed = process(2, 12_000, 15, 25);
    failed["oomscope"]["dry_run"]["end"] = json!({ "kind": "signal", "code": 15 });
    assert_eq!(verdict(&[process(1, 100, 10, 20), failed]).0, "no-verdict");
}

#[test]
fn a_process_without_a_recording_of_its_end_is_no_fit() {
    let project = Project::new();
    project.write("recorded.json", holding(100, 7).to_string());
    let copy = "cp recorded.json \"$OOMSCOPE_DIR/vm-pid$$-exit1.pickle.gz\"";
    let verdict = |marks: &str| {
        let job = format!("cd \"$OOMSCOPE_DIR/.recorder\" && {marks}; cd - >/dev/null; {copy}");
        let check = ["check", "--gpu", "a10", "--format", "json", "--max-ooms", "0", "--", "sh", "-c", &job];
        let (code, out, _) = project.oomscope("", &check);
        let report: Value = serde_json::from_str(&out).unwrap();
        (code, report["dry_run"]["verdict"].as_str().unwrap().to_owned())
    };
    let fits = (0, "would-fit".to_owned());
    assert_eq!(verdict("true"), fits);
    assert_eq!(verdict("touch recorded-x-1; printf gone > done-x-1"), fits);
    let unknown = (1, "no-verdict".to_owned());
    assert_eq!(verdict("touch recorded-x-1"), unknown);
    assert_eq!(verdict("touch recorded-x-1; printf 'exit 1.0' > done-x-1"), unknown);
    assert_eq!(verdict("touch isolated-x-1"), unknown);
    // The page of a dry run says so, too.
    let job = format!("touch \"$OOMSCOPE_DIR/.recorder/recorded-x-1\"; {copy}");
    let command = ["dry-run", "--exit-code", "verdict", "-o", "dry", "--", "sh", "-c", &job];
    let (code, _, page) = project.oomscope("", &command);
    assert!(code == 2 && page.contains("1 process left no recording"), "{page}");
}
