//! What the workload leaves behind: trace events and annotations with their times.

use oomscope::snapshot::Action;

use super::random::Random;
use super::stacks::Traceback;

/// Some moment in 2026, in microseconds since the epoch.
const START_US: u64 = 1_795_242_177_179_640;
const PAUSE_BETWEEN_STEPS_US: u64 = 12_000;

pub struct Event {
    pub action: Action,
    pub address: u64,
    pub size: u64,
    pub time_us: u64,
    pub traceback: Traceback,
}

pub struct Annotation {
    pub stage: &'static str,
    pub name: &'static str,
    pub time_us: u64,
}

pub struct Journal {
    /// The events of the latest operation; whoever writes them takes them out.
    pub events: Vec<Event>,
    pub annotations: Vec<Annotation>,
    now_us: u64,
    random: Random,
}

impl Journal {
    pub fn new(random: Random) -> Self {
        Journal { events: Vec::new(), annotations: Vec::new(), now_us: START_US, random }
    }

    pub fn record(&mut self, action: Action, address: u64, size: u64, traceback: Traceback) {
        self.now_us += self.delay_before(action);
        self.events.push(Event { action, address, size, time_us: self.now_us, traceback });
    }

    pub fn annotate(&mut self, stage: &'static str, name: &'static str) {
        self.now_us += 1 + self.random.below(40);
        self.annotations.push(Annotation { stage, name, time_us: self.now_us });
    }

    pub fn pause(&mut self) {
        self.now_us += PAUSE_BETWEEN_STEPS_US + self.random.below(PAUSE_BETWEEN_STEPS_US);
    }

    /// In recorded files the two halves of a free mostly fall into the same microsecond, and
    /// most other events follow within a few, with a tail where a kernel is launched.
    fn delay_before(&mut self, action: Action) -> u64 {
        if action == Action::FreeCompleted {
            return u64::from(self.random.one_in(8));
        }
        if self.random.one_in(6) { 5 + self.random.below(60) } else { self.random.below(5) }
    }
}
