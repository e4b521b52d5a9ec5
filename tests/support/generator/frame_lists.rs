//! Writes the lists of frames: one list per captured stack, one dict per unique frame.

use std::collections::HashMap;
use std::io;

use oomscope::snapshot::pickle::{MemoKey, PickleWriter};

use super::frame_pool::FrameId;
use super::stacks::{StackSpeller, Traceback};

pub struct FrameLists<'a> {
    stacks: &'a StackSpeller,
    /// The frames of the list that is being written; kept for its capacity.
    spelled: Vec<FrameId>,
    frames: Vec<Option<MemoKey>>,
    /// All blocks and segments without a stack share one empty list.
    empty: Option<MemoKey>,
    /// Only neighbouring events share a list, so one is enough to remember for them.
    latest: Option<(u64, MemoKey)>,
    kept: HashMap<u64, MemoKey>,
}

impl<'a> FrameLists<'a> {
    pub fn new(stacks: &'a StackSpeller) -> Self {
        FrameLists {
            stacks,
            spelled: Vec::new(),
            frames: vec![None; stacks.pool.frames.len()],
            empty: None,
            latest: None,
            kept: HashMap::new(),
        }
    }

    pub fn frames_written(&self) -> u64 {
        self.frames.iter().flatten().count() as u64
    }

    pub fn write_empty(&mut self, pickle: &mut PickleWriter) -> io::Result<()> {
        match self.empty {
            Some(memo) => pickle.write_reference(memo),
            None => {
                self.empty = Some(pickle.begin_list()?);
                Ok(())
            }
        }
    }

    pub fn write(&mut self, pickle: &mut PickleWriter, traceback: Traceback) -> io::Result<()> {
        let number = traceback.number;
        let latest = self.latest.filter(|&(latest, _)| latest == number);
        let latest = latest.map(|(_, memo)| memo);
        match latest.or_else(|| self.kept.get(&number).copied()) {
            Some(memo) => pickle.write_reference(memo),
            None => {
                let memo = self.write_list(pickle, traceback)?;
                self.latest = Some((number, memo));
                Ok(())
            }
        }
    }

    /// Writes a stack that comes again at any later time.
    pub fn write_and_keep(&mut self, pickle: &mut PickleWriter, traceback: Traceback) -> io::Result<()> {
        self.write(pickle, traceback)?;
        self.kept.extend(self.latest);
        Ok(())
    }

    fn write_list(&mut self, pickle: &mut PickleWriter, traceback: Traceback) -> io::Result<MemoKey> {
        self.stacks.spell(traceback.content, &mut self.spelled);
        let list = pickle.begin_list()?;
        let total = self.spelled.len();
        for (index, &frame) in self.spelled.iter().enumerate() {
            pickle.begin_item(index, total);
            let known = &mut self.frames[frame as usize];
            match *known {
                Some(memo) => pickle.write_reference(memo)?,
                None => {
                    let frame = &self.stacks.pool.frames[frame as usize];
                    *known = Some(pickle.begin_small_dict()?);
                    pickle.write_interned("name")?;
                    pickle.write_text(&frame.name)?;
                    pickle.write_interned("filename")?;
                    pickle.write_text(frame.file)?;
                    pickle.write_interned("line")?;
                    pickle.write_int(i64::from(frame.line))?;
                    pickle.end_small_dict();
                }
            }
            pickle.end_list_item(index, total);
        }
        Ok(list)
    }
}
