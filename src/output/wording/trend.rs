//! The summary of growth over weeks.

use super::Summary;
use crate::base::units::{count, counted, date, percent, size};
use crate::compare::trend::{TrendKind, TrendReport, TrendRow};

impl TrendReport {
    /// The verdict, and the line that creeps most.
    pub fn summary(&self) -> Summary {
        let first = self.rows.first();
        let growth = first.map_or_else(String::new, |row| format!("; {} {}", row.line, row.describe_growth()));
        let answer = format!("{} ({}){growth}", self.verdict(), self.describe_runs());
        let Some(creeping) = first.filter(|row| row.growth == TrendKind::Creep) else {
            return Summary::from_answer(answer);
        };
        let place = creeping.place().map(str::to_owned);
        let action = match place {
            Some(_) => "see what that line keeps from run to run",
            None => "record with stacks and --top 50, so that lines are compared too",
        };
        Summary { action: Some(action.to_owned()), copy: place, ..Summary::from_answer(answer) }
    }

    /// `FAILED: 2 lines creep by 0.5% a week or more`
    pub(crate) fn verdict(&self) -> String {
        let creeping = self.rows.iter().filter(|row| row.growth == TrendKind::Creep).count() as u64;
        let limit = percent(self.max_creep_ratio);
        match creeping {
            0 => format!("nothing creeps by {limit} a week or more"),
            1 => format!("FAILED: 1 line creeps by {limit} a week or more"),
            n => format!("FAILED: {} lines creep by {limit} a week or more", count(n)),
        }
    }

    /// `24 runs from 2026-09-01 to 2026-11-02`
    pub(crate) fn describe_runs(&self) -> String {
        let runs = counted(self.runs, "run");
        match (self.first_us, self.last_us) {
            (Some(first), Some(last)) => format!("{runs} from {} to {}", date(first), date(last)),
            _ => runs,
        }
    }
}

impl TrendRow {
    /// `app/train.py:27` of a source line, without the function.
    pub(crate) fn place(&self) -> Option<&str> {
        self.line.split(" in ").next().filter(|_| self.is_line)
    }

    /// `+1.1% (95 MiB) a week since 2026-10-03, 8 GiB -> 8.9 GiB, on 3 ranks`
    pub(crate) fn describe_growth(&self) -> String {
        let sizes = format!("{} -> {}", size(self.before_bytes), size(self.after_bytes));
        let ranks = match self.ranks {
            1 => format!("on {}", self.rank),
            n => format!("on {} ranks, most on {}", count(n), self.rank),
        };
        let since = date(self.since_us);
        match self.growth {
            TrendKind::Creep => {
                let [ratio, bytes] = [percent(self.ratio_per_week), size(self.bytes_per_week)];
                format!("+{ratio} ({bytes}) a week since {since}, {sizes}, {ranks}")
            }
            TrendKind::Step => format!("stepped up on {since}, {sizes}, {ranks}"),
        }
    }
}
