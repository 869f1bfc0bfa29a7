//! Functions of a script: their bodies, and functions that call each other without end.

use std::collections::HashMap;
use std::rc::Rc;

use super::argument::Arg;
use super::state::{Flow, State};
use super::walk::{Context, Stdin, Walk};
use crate::shell::tree::Command;

/// Number of parameters of a call whose values are tracked. Further parameters are treated as
/// unknown.
const MAX_PARAMETERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Functions {
    defined: Vec<Function>,
    /// The index of the last definition of each name.
    by_name: HashMap<String, usize>,
    /// The function whose definition is currently being walked.
    open: Option<usize>,
    /// The functions whose calls are currently being walked.
    called: Vec<String>,
}

#[derive(Debug)]
struct Function {
    name: String,
    body: Rc<Command>,
    /// The functions that this function calls, and whether each call runs in parallel with the
    /// caller.
    calls: Vec<(String, bool)>,
}

impl Functions {
    /// The name of a function that calls itself, directly or through others, if at least one of
    /// these calls runs in parallel with its caller. The processes of such a function multiply.
    pub(super) fn bomb(&self) -> Option<String> {
        let edges = self.edges();
        let circle = circles(&edges);
        let multiplies = |from: &usize| {
            edges[*from].iter().any(|(to, forks)| *forks && circle[*from] == circle[*to])
        };
        let found = (0..edges.len()).find(multiplies)?;
        Some(self.defined[found].name.clone())
    }

    /// The calls of each function, as edges to the last definition of the called name. If a name
    /// has several definitions, the calls of all definitions are assigned to the last definition.
    fn edges(&self) -> Vec<Vec<(usize, bool)>> {
        let mut edges = vec![Vec::new(); self.defined.len()];
        for function in &self.defined {
            let Some(from) = self.by_name.get(&function.name) else { continue };
            let known = |(name, forks): &(String, bool)| Some((*self.by_name.get(name)?, *forks));
            edges[*from].extend(function.calls.iter().filter_map(known));
        }
        edges
    }
}

/// The strongly connected components of the graph: two nodes have the same number if each can reach
/// the other.
fn circles(edges: &[Vec<(usize, bool)>]) -> Vec<usize> {
    const NEW: usize = usize::MAX;
    let mut order = vec![NEW; edges.len()];
    let mut low = vec![0; edges.len()];
    let mut circle = vec![NEW; edges.len()];
    let mut stack = Vec::new();
    let mut next = 0;
    for root in 0..edges.len() {
        // The path of the search: each node with the number of its edges that were already
        // followed.
        let mut way: Vec<(usize, usize)> = Vec::new();
        if order[root] == NEW {
            way.push((root, 0));
        }
        while let Some((node, followed)) = way.last_mut() {
            let node = *node;
            if *followed == 0 && order[node] == NEW {
                (order[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
            }
            match edges[node].get(*followed) {
                Some((to, _)) => {
                    *followed += 1;
                    if order[*to] == NEW {
                        way.push((*to, 0));
                    } else if circle[*to] == NEW {
                        low[node] = low[node].min(order[*to]);
                    }
                }
                None => {
                    way.pop();
                    if let Some((parent, _)) = way.last() {
                        low[*parent] = low[*parent].min(low[node]);
                    }
                    if low[node] == order[node] {
                        while let Some(member) = stack.pop() {
                            circle[member] = node;
                            if member == node {
                                break;
                            }
                        }
                    }
                }
            }
        }
    }
    circle
}

impl Walk<'_> {
    pub(super) fn define(&mut self, name: &str, body: &Command, context: &Context, state: &State) {
        let outer = self.functions.open;
        if self.shadow == 0 {
            let calls = Vec::new();
            let body = Rc::new(body.clone());
            let at = self.functions.defined.len();
            self.functions.defined.push(Function { name: name.to_owned(), body, calls });
            self.functions.by_name.insert(name.to_owned(), at);
            self.functions.open = Some(at);
        }
        let inner = Context { forks: false, via: None, stdin: Stdin::Inherited, ..context.clone() };
        self.command(body, &inner, state.clone());
        self.functions.open = outer;
        self.current = None;
    }

    /// Records a call of `name`. If it is a function, its body is walked again from this state.
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
        let at = *self.functions.by_name.get(name)?;
        let body = self.functions.defined[at].body.clone();
        let own = self.functions.open.is_some_and(|open| self.functions.defined[open].name == name);
        if own || self.functions.called.iter().any(|each| each == name) {
            return Some(Flow::same(state.clone()));
        }
        let mut inner = state.clone();
        for (at, arg) in args.iter().enumerate().skip(1).take(MAX_PARAMETERS) {
            inner.set(&at.to_string(), arg.exact(), self.meter);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_reach_each_other_are_in_one_circle() {
        let edges = |pairs: &[(usize, usize)], nodes: usize| {
            let mut edges = vec![Vec::new(); nodes];
            for (from, to) in pairs {
                edges[*from].push((*to, false));
            }
            edges
        };
        let found = circles(&edges(&[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3)], 6));
        assert!(found[0] == found[1] && found[1] == found[2]);
        assert!(found[3] == found[4] && found[3] != found[0]);
        assert!(found[5] != found[0] && found[5] != found[3]);
    }
}
