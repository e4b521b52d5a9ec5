//! The modules and optimizers of a program: which modules train, and which need no gradients.

use super::program::{Line, Place, ProgramText, calls_backward, last_part};
use super::tracked::is_on_host;
use super::tree::{Expr, ExprKind, Stmt};

impl ProgramText<'_> {
    /// Whether no frame turns gradients off in its source text.
    pub fn has_grad(&self, frames: &[Line<'_>]) -> bool {
        frames.iter().filter_map(|frame| self.place(frame)).all(|place| place.has_grad())
    }

    /// The module whose forward pass runs in `frames`, if no optimizer of the program has its parameters.
    pub fn untrained(&self, frames: &[Line<'_>]) -> Option<String> {
        // A module of PyTorch itself has no line in the program.
        let at = frames.iter().rposition(|frame| frame.function == "forward").map_or(0, |forward| forward + 1);
        let place = self.place(frames.get(at)?)?;
        let mut calls = place.statement().calls().filter(|call| {
            let name = call.called().unwrap_or_default();
            let is_own = call.receiver().is_none_or(|receiver| receiver.word == "self");
            is_own && name.starts_with(char::is_lowercase) && self.functions(name).is_empty() && !is_on_host(name)
        });
        let (Some(call), None) = (calls.next(), calls.next()) else { return None };
        let module = self.argument(call.parts.first()?.variable()?, &frames[at..]);
        let name = last_part(&module);
        let trained = self.trained()?;
        let is_trained = trained.iter().any(|one| one == name || self.mentions(name, one) || self.mentions(one, name));
        let mut calls = self.statements().flat_map(Stmt::calls);
        let is_frozen = calls.any(|call| {
            let is_it = call.receiver().and_then(Expr::variable).is_some_and(|it| last_part(&it) == name);
            is_it && matches!(call.called(), Some("requires_grad_" | "parameters"))
        });
        (!is_trained && !is_frozen).then_some(module)
    }

    /// Whether the program assigns to `name` something that contains `other`, other than a copy.
    fn mentions(&self, name: &str, other: &str) -> bool {
        self.assigned(name).any(|it| it.called() != Some("deepcopy") && it.walk().any(|part| part.word == other))
    }

    /// The variable of the caller that a parameter stands for; else the variable itself.
    fn argument(&self, variable: String, frames: &[Line<'_>]) -> String {
        let [frame, caller, ..] = frames else { return variable };
        let function = self.place(frame).and_then(|place| place.function());
        let index = function.and_then(|it| it.parts.iter().position(|parameter| parameter.word == variable));
        let (Some(function), Some(index), Some(caller)) = (function, index, self.place(caller)) else {
            return variable;
        };
        let is_method = function.parts.first().is_some_and(|first| first.word == "self");
        let call = caller.statement().calls().find(|call| call.called() == Some(function.word));
        call.and_then(|call| call.parts.get(index + 1 - usize::from(is_method))?.variable()).unwrap_or(variable)
    }

    /// The last parts of the names of the modules whose parameters optimizers get; `None` if there is no optimizer, or the
    /// arguments of one are not understood.
    fn trained(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for call in self.statements().flat_map(Stmt::calls).filter(|call| is_optimizer(call)) {
            let given = call.parts.get(1)?;
            let modules = given.walk().filter(|part| part.called() == Some("parameters"));
            let modules: Vec<String> = modules.filter_map(|part| part.receiver()?.variable()).collect();
            let is_list = given.kind == ExprKind::Group;
            if modules.is_empty() && !is_list || modules.iter().any(|name| name == "self") {
                return None;
            }
            names.extend(modules.iter().flat_map(|name| name.split('.')).filter(|it| *it != "self").map(str::to_owned));
            names.extend(given.parts.iter().filter(|_| is_list).filter_map(Expr::variable));
        }
        (!names.is_empty()).then_some(names)
    }

    /// The module whose parameters the only optimizer of the program gets, and the tensors of the size of each parameter that
    /// training adds to it: its gradient and the optimizer's state. `None` if some parameters may be frozen.
    pub fn training_tensors(&self) -> Option<(String, u64)> {
        let mut optimizers = self.statements().flat_map(Stmt::calls).filter(|call| is_optimizer(call));
        let (Some(optimizer), None) = (optimizers.next(), optimizers.next()) else { return None };
        let module = optimizer.parts.get(1).filter(|it| it.called() == Some("parameters"))?.receiver()?;
        let is_part = module.walk().any(|it| it.kind == ExprKind::Subscript);
        let module = module.variable().filter(|_| !is_part)?;
        // A function may freeze parameters of its argument, as those for adapters do.
        let mut given = self.assigned(&module).flat_map(|value| value.parts.iter().skip(1));
        let is_changed = given.any(|given| given.is_variable(&module));
        // As `torch.optim` defines them; of others no state is assumed.
        let states = if matches!(optimizer.called()?, "Adam" | "AdamW" | "NAdam" | "RAdam") { 2 } else { 0 };
        let mut parts = self.statements().flat_map(Stmt::expressions);
        let may_freeze = is_changed || parts.any(|part| part.word.starts_with("requires_grad"));
        (!may_freeze).then(|| (last_part(&module).to_owned(), 1 + states))
    }

    /// The module in evaluation mode that a running function calls, unless one of them calls `backward`.
    pub fn evaluated(&self, frames: &[Line<'_>]) -> Option<String> {
        let places: Vec<Place<'_, '_>> = frames.iter().filter_map(|frame| self.place(frame)).collect();
        let functions = places.iter().filter_map(Place::function);
        if functions.clone().any(|function| calls_backward(function).next().is_some()) {
            return None;
        }
        let calls = functions.flat_map(Stmt::walk).flat_map(Stmt::calls);
        calls.filter(|call| call.called() == Some("eval")).find_map(|call| call.receiver()?.variable())
    }
}

/// Whether `call` constructs an optimizer: a class of `optim`, or one with the parameters of a module as an argument.
pub(super) fn is_optimizer(call: &Expr<'_>) -> bool {
    let is_class = call.called().is_some_and(|name| name.starts_with(char::is_uppercase));
    is_class
        && (call.receiver().is_some_and(|module| module.word == "optim")
            || call.parts.iter().skip(1).any(|given| given.called() == Some("parameters")))
}
