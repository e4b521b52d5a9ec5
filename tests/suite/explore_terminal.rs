//! `oomscope explore` in a real terminal: keys in, screen out, by tmux.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{fixtures, program};

const OOM: &str = "2.15.0-oom_varlen-at-oom";

/// A terminal of 80 x 24 with a shell.
struct Terminal {
    server: String,
}

impl Terminal {
    /// `None` where tmux is not installed.
    fn new(test: &str) -> Option<Self> {
        let has_tmux =
            Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        if !has_tmux {
            println!("skipped: tmux is not installed");
            return None;
        }
        let terminal = Self { server: format!("oomscope-{test}-{}", std::process::id()) };
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "env PS1='$ ' LC_ALL=C.UTF-8 sh",
        ]);
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.server]).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn send(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen has `text`.
    fn expect(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "no {text:?}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn start(&self, arguments: &str) {
        let program = program::command();
        let program = program.get_program().to_str().unwrap();
        self.send(&[&format!("clear; {program} {arguments}; echo exit=$?"), "Enter"]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn keys_change_the_screen_and_the_shell_comes_back() {
    let Some(terminal) = Terminal::new("keys") else { return };
    terminal.start(&format!("explore {}", fixtures::path(OOM).display()));
    terminal.expect("activations");
    terminal.send(&["3"]);
    terminal.expect("held by line");
    terminal.send(&["Enter"]);
    terminal.expect("workloads.py");
    terminal.send(&["Escape", "2"]);
    terminal.expect("✗ failed request of 399 MiB");
    terminal.tmux(&["resize-window", "-x", "120", "-y", "30"]);
    terminal.expect(": go to");
    terminal.send(&["q"]);
    let screen = terminal.expect("exit=0");
    assert!(!screen.contains("held by"), "{screen}");
    terminal.send(&["echo typed", "Enter"]);
    terminal.expect("\ntyped");
}

#[test]
fn a_file_of_several_devices_has_the_next_one() {
    let Some(terminal) = Terminal::new("devices") else { return };
    terminal.start(&format!("explore {}", fixtures::path("2.15.0-two_devices").display()));
    terminal.expect("GPU 0");
    terminal.send(&["r"]);
    terminal.expect("GPU 1");
    terminal.send(&["r"]);
    terminal.expect("GPU 0");
    terminal.send(&["q"]);
    terminal.expect("exit=0");
}

#[test]
fn a_signal_restores_the_terminal() {
    let Some(terminal) = Terminal::new("signal") else { return };
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let program = program::command();
    let program = program.get_program().to_str().unwrap();
    let run = format!("echo $$ >{}; exec {program} explore {}", pid.display(), fixtures::path(OOM).display());
    terminal.send(&[&format!("clear; sh -c '{run}'; echo exit=$?"), "Enter"]);
    terminal.expect("activations");
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    let screen = terminal.expect("exit=143");
    assert!(!screen.contains("activations"), "{screen}");
    terminal.send(&["echo typed", "Enter"]);
    terminal.expect("\ntyped");
}

#[test]
fn without_a_terminal_it_names_analyze() {
    let path = fixtures::path(OOM);
    let output = program::command().arg("explore").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("use `oomscope analyze "), "{message}");
    assert!(output.stdout.is_empty());
}
