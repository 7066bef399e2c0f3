//! A Rust file as the rules see it: tokens with lines, functions, modules, and which lines are tests.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Signature};

pub(crate) struct RustSource {
    /// All tokens but documentation, macros' bodies included.
    pub(crate) tokens: Vec<Token>,
    pub(crate) functions: Vec<Function>,
    pub(crate) modules: Vec<Module>,
    tests: Vec<RangeInclusive<usize>>,
}

pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) line_end: usize,
    pub(crate) kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name(String),
    /// The value of a string, without quotes and escapes.
    Text(String),
    /// Punctuation, brackets included.
    Mark(char),
    /// Numbers and characters.
    Other,
}

pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

/// A module that is declared here.
pub(crate) struct Module {
    /// The inline modules around it.
    pub(crate) inside: Vec<String>,
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Whether its content is in another file.
    pub(crate) elsewhere: bool,
    /// The file that a `path` attribute names.
    pub(crate) path: Option<String>,
}

impl RustSource {
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
        let file: syn::File = syn::parse2(tokens.clone()).map_err(|error| error.to_string())?;
        let mut collector = Collector::default();
        collector.visit_file(&file);
        let mut flat = Vec::new();
        flatten(tokens, &mut flat);
        let mut tests = collector.tests;
        let is_test_folder =
            |folder| path.starts_with(&format!("{folder}/")) || path.contains(&format!("/{folder}/"));
        if is_test_folder("tests") || is_test_folder("benches") || path.ends_with("/tests.rs") {
            tests.push(0..=usize::MAX);
        }
        Ok(Self { tokens: flat, functions: collector.functions, modules: collector.modules, tests })
    }

    /// Whether a line belongs to tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }

    /// The strings, each with the line where it begins.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (usize, &str)> {
        self.tokens.iter().filter_map(|token| match &token.kind {
            TokenKind::Text(text) => Some((token.line, text.as_str())),
            _ => None,
        })
    }

    /// Whether a string covers this line or a part of it.
    pub(crate) fn is_in_text(&self, line: usize) -> bool {
        let covers = |token: &Token| {
            matches!(token.kind, TokenKind::Text(_)) && (token.line..=token.line_end).contains(&line)
        };
        self.tokens.iter().any(covers)
    }
}

fn flatten(tokens: TokenStream, flat: &mut Vec<Token>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(tree) = tokens.next() {
        match tree {
            TokenTree::Group(group) => flatten_group(&group, flat),
            TokenTree::Ident(name) => {
                let text = name.to_string();
                let text = text.strip_prefix("r#").unwrap_or(&text).to_owned();
                push(flat, name.span(), TokenKind::Name(text));
            }
            TokenTree::Literal(literal) => {
                let span = literal.span();
                push(flat, span, text_of(literal));
            }
            TokenTree::Punct(mark) => {
                // Inner documentation is `#![doc = …]`, outer is `#[doc = …]`.
                push(flat, mark.span(), TokenKind::Mark(mark.as_char()));
                if mark.as_char() == '#' {
                    if let Some(TokenTree::Punct(next)) = tokens.peek()
                        && next.as_char() == '!'
                    {
                        tokens.next();
                    }
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && is_documentation(group)
                    {
                        flat.pop();
                        tokens.next();
                    }
                }
            }
        }
    }
}

fn flatten_group(group: &Group, flat: &mut Vec<Token>) {
    let (open, close) = match group.delimiter() {
        Delimiter::Parenthesis => ('(', ')'),
        Delimiter::Brace => ('{', '}'),
        Delimiter::Bracket => ('[', ']'),
        Delimiter::None => return flatten(group.stream(), flat),
    };
    push(flat, group.span_open(), TokenKind::Mark(open));
    flatten(group.stream(), flat);
    push(flat, group.span_close(), TokenKind::Mark(close));
}

fn push(flat: &mut Vec<Token>, span: Span, kind: TokenKind) {
    flat.push(Token { line: span.start().line, line_end: span.end().line, kind });
}

fn is_documentation(group: &Group) -> bool {
    let mut tokens = group.stream().into_iter();
    matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "doc")
        && matches!(tokens.next(), Some(TokenTree::Punct(mark)) if mark.as_char() == '=')
}

fn text_of(literal: proc_macro2::Literal) -> TokenKind {
    match syn::Lit::new(literal) {
        syn::Lit::Str(text) => TokenKind::Text(text.value()),
        syn::Lit::ByteStr(bytes) => TokenKind::Text(String::from_utf8_lossy(&bytes.value()).into_owned()),
        _ => TokenKind::Other,
    }
}

#[derive(Default)]
struct Collector {
    functions: Vec<Function>,
    modules: Vec<Module>,
    tests: Vec<RangeInclusive<usize>>,
    inside: Vec<String>,
}

impl Collector {
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        let lines = signature.fn_token.span.start().line..=block.brace_token.span.close().end().line;
        if attributes.iter().any(is_test_attribute) {
            self.tests.push(lines.clone());
        }
        self.functions.push(Function { name: signature.ident.to_string(), lines });
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.attrs, &function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if block.attrs.iter().any(is_test_attribute) {
            let end = block.brace_token.span.close().end().line;
            self.tests.push(block.impl_token.span.start().line..=end);
        }
        visit::visit_item_impl(self, block);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let line = module.mod_token.span.start().line;
        if let Some((brace, _)) = &module.content
            && module.attrs.iter().any(is_test_attribute)
        {
            self.tests.push(line..=brace.span.close().end().line);
        }
        self.modules.push(Module {
            inside: self.inside.clone(),
            name: module.ident.to_string(),
            line,
            elsewhere: module.content.is_none(),
            path: module.attrs.iter().find_map(path_attribute),
        });
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }
}

/// `#[test]`, `#[tokio::test]`, or a `#[cfg(…)]` that asks for `test`.
fn is_test_attribute(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("cfg") {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
        return words.clone().any(|word| word == "test") && !words.any(|word| word == "not");
    }
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    if !pair.path.is_ident("path") {
        return None;
    }
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_is_no_text_and_tests_are_known() {
        let text = "//! inner\n/// outer\nfn a() { b(\"text\"); }\n#[cfg(test)]\nmod tests {\n  fn c() {}\n}\n#[cfg(not(test))]\nfn d() {}\n";
        let source = RustSource::parse("src/a.rs", text).unwrap();
        assert_eq!(source.texts().collect::<Vec<_>>(), [(3, "text")]);
        let tests: Vec<_> = (1..=9).filter(|line| source.is_test(*line)).collect();
        assert_eq!(tests, [5, 6, 7]);
        assert!(RustSource::parse("tests/a.rs", text).unwrap().is_test(3));
    }

    #[test]
    fn strings_inside_macros_are_seen() {
        let source = RustSource::parse("src/a.rs", "fn a() { println!(\"{} x\", r#\"raw\"#); }").unwrap();
        assert_eq!(source.texts().map(|(_, text)| text).collect::<Vec<_>>(), ["{} x", "raw"]);
    }
}
