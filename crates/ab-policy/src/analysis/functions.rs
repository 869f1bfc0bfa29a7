//! Functions of a script: what they hold, and which of them start each other without an end.

use std::rc::Rc;

use super::argument::Arg;
use super::state::{Flow, State};
use super::walk::{Context, Stdin, Walk};
use crate::shell::tree::Command;

#[derive(Debug, Default)]
pub(super) struct Functions {
    defined: Vec<Function>,
    /// The one whose definition is being looked at.
    open: Option<usize>,
    /// Those that are being looked at as calls.
    called: Vec<String>,
}

#[derive(Debug)]
struct Function {
    name: String,
    body: Rc<Command>,
    /// Whom it calls, and whether beside itself.
    calls: Vec<(String, bool)>,
}

impl Functions {
    /// The name of a function that multiplies.
    pub(super) fn bomb(&self) -> Option<String> {
        self.defined.iter().find(|function| self.multiplies(function)).map(|it| it.name.clone())
    }

    /// Whether `function` comes back to itself on a way with a call that runs beside its caller.
    fn multiplies(&self, function: &Function) -> bool {
        // Each function is visited at most twice: reached plainly, and reached beside.
        let mut seen: Vec<(usize, bool)> = Vec::new();
        let mut open: Vec<(&Function, bool)> = vec![(function, false)];
        while let Some((from, forked)) = open.pop() {
            for (callee, forks) in &from.calls {
                let forked = forked || *forks;
                if *callee == function.name && forked {
                    return true;
                }
                for (at, next) in self.defined.iter().enumerate() {
                    if next.name == *callee && !seen.contains(&(at, forked)) {
                        seen.push((at, forked));
                        open.push((next, forked));
                    }
                }
            }
        }
        false
    }
}

impl Walk<'_> {
    pub(super) fn define(&mut self, name: &str, body: &Command, context: &Context, state: &State) {
        let outer = self.functions.open;
        if self.shadow == 0 {
            let calls = Vec::new();
            let body = Rc::new(body.clone());
            self.functions.defined.push(Function { name: name.to_owned(), body, calls });
            self.functions.open = Some(self.functions.defined.len() - 1);
        }
        let inner = Context { forks: false, via: None, stdin: Stdin::Inherited, ..context.clone() };
        self.command(body, &inner, state.clone());
        self.functions.open = outer;
        self.current = None;
    }

    /// Notes that `name` is run; looks at the function again, from here, if it is one.
    pub(super) fn call(
        &mut self,
        name: &str,
        args: &[Arg],
        context: &Context,
        state: &State,
    ) -> Option<Flow> {
        if let Some(open) = self.functions.open {
            self.functions.defined[open].calls.push((name.to_owned(), context.forks));
        }
        let function = self.functions.defined.iter().rev().find(|each| each.name == name)?;
        let body = function.body.clone();
        let own = self.functions.open.is_some_and(|open| self.functions.defined[open].name == name);
        if own || self.functions.called.iter().any(|each| each == name) {
            return Some(Flow::same(state.clone()));
        }
        let mut inner = state.clone();
        for (at, arg) in args.iter().enumerate().skip(1) {
            inner.set(&at.to_string(), arg.exact().map(str::to_owned));
        }
        let current = self.current;
        self.functions.called.push(name.to_owned());
        let open = self.functions.open.take();
        self.shadow += 1;
        let flow =
            self.command(&body, &Context { depth: context.depth + 1, ..context.clone() }, inner);
        self.shadow -= 1;
        self.functions.open = open;
        self.functions.called.pop();
        self.current = current;
        Some(Flow {
            ok: flow.ok.map(|after| after.with_variables_of(state)),
            fail: flow.fail.map(|after| after.with_variables_of(state)),
        })
    }
}
