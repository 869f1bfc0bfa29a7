//! A parsed command line: what a shell would execute, before any expansion.

use std::cell::OnceCell;
use std::rc::Rc;

/// A list of commands that are executed one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Script {
    pub(crate) items: Vec<Item>,
}

/// A chain of pipelines, and how the chain ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) first: Pipeline,
    pub(crate) rest: Vec<(Link, Pipeline)>,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Link {
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// The chain is the last one. Nothing follows it.
    Last,
    /// The chain ends with `;` or at the end of a line.
    Separator,
    /// The chain ends with `&`, so it runs in the background.
    Background,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pipeline {
    pub(crate) negated: bool,
    pub(crate) commands: Vec<Command>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) body: Body,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Simple(Simple),
    Subshell(Script),
    Group(Script),
    If {
        arms: Vec<(Script, Script)>,
        otherwise: Option<Script>,
    },
    Loop {
        until: bool,
        condition: Script,
        body: Script,
    },
    For {
        name: String,
        words: Vec<Word>,
        body: Script,
    },
    ArithmeticFor {
        head: Word,
        endless: bool,
        body: Script,
    },
    Case {
        subject: Word,
        arms: Vec<(Vec<Word>, Script)>,
    },
    Function {
        name: String,
        body: Box<Command>,
    },
    /// A test `[[ … ]]`, with its operands.
    Test(Vec<Word>),
    /// An arithmetic command `(( … ))`.
    Arithmetic(Word),
    Coprocess(Box<Command>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Simple {
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) words: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    /// Whether the new value differs from the assigned word. This is the case if the assignment
    /// appends to the variable or sets one element.
    pub(crate) partial: bool,
    /// The assigned word, or the elements of an array.
    pub(crate) values: Vec<Word>,
    pub(crate) array: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Redirect {
    pub(crate) kind: RedirectKind,
    target: Word,
    /// The body of a here-document. It is filled in when the line of the command ends.
    document: Option<Document>,
}

pub(crate) type Document = Rc<OnceCell<Word>>;

impl Redirect {
    pub(super) fn new(kind: RedirectKind, target: Word) -> Self {
        Self { kind, target, document: None }
    }

    pub(super) fn document(document: Document) -> Self {
        Self { kind: RedirectKind::Document, target: Word::default(), document: Some(document) }
    }

    /// The target. For a here-document, this is its body.
    pub(crate) fn target(&self) -> &Word {
        self.document.as_ref().and_then(|document| document.get()).unwrap_or(&self.target)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RedirectKind {
    Read,
    Write,
    /// `<>` opens the target for reading and writing.
    ReadWrite,
    /// `>&1`, `<&-` and similar redirects copy or close a file descriptor.
    Duplicate,
    /// `<<`. The target is the body of the here-document.
    Document,
    /// `<<<` uses the target itself as input (a here-string).
    Text,
}

/// A word before expansion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Word {
    pub(crate) parts: Vec<Part>,
    /// The text of the word as it was written.
    pub(crate) source: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Unquoted text. It may contain wildcards.
    Bare(String),
    /// Text inside quotes or after a backslash.
    Quoted(String),
    /// An unquoted `{`, `,` or `}`, which may belong to a brace expansion.
    Brace(char),
    /// A tilde at the beginning of a word, with the name that follows it.
    Tilde(String),
    Variable {
        name: String,
        quoted: bool,
        /// Whether an operator follows the name. The result may then differ from the variable's
        /// value.
        altered: bool,
        /// The words that belong to the operator.
        inner: Vec<Part>,
        source: String,
    },
    /// `$( … )` or backticks: the output of the commands is inserted.
    Substitution { script: Script, quoted: bool, source: String },
    /// `<( … )` or `>( … )`: the output or the input of the commands is available as a file.
    Process { script: Script, source: String },
    /// An arithmetic expansion `$(( … ))`, with the expansions inside it.
    Arithmetic { inner: Vec<Part>, source: String },
}
