//! A small language, as a compiler would treat it: text to tokens to boxed trees, trees rewritten until nothing changes, and
//! printed again. Nearly all memory is small boxes, strings and vectors, most of them short-lived.
//!
//! ```text
//! program := (`fn` name `(` names `)` `=` expr `;`)*
//! expr    := `let` name `=` expr `in` expr | sum (`<` sum `?` expr `:` expr)?
//! sum     := product ((`+` | `-`) product)*      product := atom (`*` atom)*
//! atom    := number | name | name `(` exprs `)` | `(` expr `)`
//! ```

use crate::{Random, hooked};
use std::collections::HashMap;
use std::fmt::Write;

/// A tree. Numbers wrap.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A constant.
    Number(i64),
    /// A variable.
    Name(String),
    /// `+`, `-` or `*`.
    Binary(char, Box<Expr>, Box<Expr>),
    /// `let name = value in body`.
    Let(String, Box<Expr>, Box<Expr>),
    /// `a < b ? yes : no`.
    If(Box<[Expr; 4]>),
    /// A call of a function of the program.
    Call(String, Vec<Expr>),
}

/// A function.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    name: String,
    parameters: Vec<String>,
    body: Expr,
}

fn boxed(e: Expr) -> Box<Expr> {
    hooked!(Box::new(e))
}

/// Text of `functions` functions, each some dozens of nodes.
pub fn generate(functions: usize) -> String {
    let mut random = Random::new(41);
    let mut out = String::new();
    for i in 0..functions {
        let _ = write!(out, "fn f{i}(a, b) = ");
        expression(&mut out, &mut random, i, 7);
        out.push_str(";\n");
    }
    out
}

fn expression(out: &mut String, r: &mut Random, i: usize, depth: usize) {
    let leaf = depth == 0;
    let _ = match r.below(if leaf { 3 } else { 9 }) {
        0 => write!(out, "{}", r.below(100)),
        1 => write!(out, "a"),
        2 => write!(out, "b"),
        3 => {
            let _ = write!(out, "(let v{depth} = ");
            expression(out, r, i, depth - 1);
            let _ = write!(out, " in v{depth} * ");
            expression(out, r, i, depth - 1);
            write!(out, " + v{depth})")
        }
        4 => {
            let _ = write!(out, "(a * 3 < ");
            expression(out, r, i, depth - 1);
            let _ = write!(out, " ? ");
            expression(out, r, i, depth - 1);
            let _ = write!(out, " : ");
            expression(out, r, i, depth - 1);
            write!(out, ")")
        }
        // Only functions that stand before: there is no recursion.
        5 if i > 0 => {
            let _ = write!(out, "f{}(", r.below(i));
            expression(out, r, i, depth - 1);
            write!(out, ", {})", r.below(50))
        }
        k => {
            let _ = write!(out, "(");
            expression(out, r, i, depth - 1);
            let _ = write!(out, " {} ", ['+', '-', '*'][k % 3]);
            expression(out, r, i, depth - 1);
            write!(out, ")")
        }
    };
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Number(i64),
    Sign(char),
}

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let len = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len())
            .max(1);
        let (word, tail) = rest.split_at(len);
        hooked!(out.push(match c {
            '0'..='9' => Token::Number(word.parse().unwrap_or(0)),
            'a'..='z' => Token::Word(word.to_string()),
            _ => Token::Sign(c),
        }));
        rest = tail.trim_start();
    }
    out
}

type Parsed<T> = Result<T, String>;

struct Parser {
    tokens: std::vec::IntoIter<Token>,
}

impl Parser {
    fn sign(&mut self, c: char) -> bool {
        let found = self.tokens.as_slice().first() == Some(&Token::Sign(c));
        if found {
            self.tokens.next();
        }
        found
    }

    fn need(&mut self, c: char) -> Parsed<()> {
        if self.sign(c) {
            Ok(())
        } else {
            Err(format!(
                "{c} expected at {:?}",
                self.tokens.as_slice().first()
            ))
        }
    }

    fn word(&mut self) -> Parsed<String> {
        match self.tokens.next() {
            Some(Token::Word(w)) => Ok(w),
            other => Err(format!("a word expected, not {other:?}")),
        }
    }

    fn keyword(&mut self, word: &str) -> bool {
        let found = matches!(self.tokens.as_slice().first(), Some(Token::Word(w)) if w == word);
        if found {
            self.tokens.next();
        }
        found
    }

    fn function(&mut self) -> Parsed<Function> {
        let name = self.word()?;
        self.need('(')?;
        let mut parameters = Vec::new();
        while !self.sign(')') {
            parameters.push(self.word()?);
            self.sign(',');
        }
        self.need('=')?;
        let body = self.expr()?;
        self.need(';')?;
        Ok(Function {
            name,
            parameters,
            body,
        })
    }

    fn expr(&mut self) -> Parsed<Expr> {
        if self.keyword("let") {
            let name = self.word()?;
            self.need('=')?;
            let value = boxed(self.expr()?);
            if !self.keyword("in") {
                return Err("in expected".to_string());
            }
            return Ok(Expr::Let(name, value, boxed(self.expr()?)));
        }
        let left = self.sum()?;
        if !self.sign('<') {
            return Ok(left);
        }
        let right = self.sum()?;
        self.need('?')?;
        let yes = self.expr()?;
        self.need(':')?;
        let no = self.expr()?;
        Ok(Expr::If(hooked!(Box::new([left, right, yes, no]))))
    }

    fn sum(&mut self) -> Parsed<Expr> {
        let mut left = self.product()?;
        loop {
            let op = if self.sign('+') {
                '+'
            } else if self.sign('-') {
                '-'
            } else {
                return Ok(left);
            };
            left = Expr::Binary(op, boxed(left), boxed(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed<Expr> {
        let mut left = self.atom()?;
        while self.sign('*') {
            left = Expr::Binary('*', boxed(left), boxed(self.atom()?));
        }
        Ok(left)
    }

    fn atom(&mut self) -> Parsed<Expr> {
        if self.sign('(') {
            let e = self.expr()?;
            self.need(')')?;
            return Ok(e);
        }
        match self.tokens.next() {
            Some(Token::Number(n)) => Ok(Expr::Number(n)),
            Some(Token::Word(name)) if self.sign('(') => {
                let mut arguments = Vec::new();
                while !self.sign(')') {
                    let e = self.expr()?;
                    hooked!(arguments.push(e));
                    self.sign(',');
                }
                Ok(Expr::Call(name, arguments))
            }
            Some(Token::Word(name)) => Ok(Expr::Name(name)),
            other => Err(format!("an expression expected, not {other:?}")),
        }
    }
}

/// The functions of a text.
///
/// # Errors
/// What was expected, and what was there.
pub fn parse(text: &str) -> Result<Vec<Function>, String> {
    let mut parser = Parser {
        tokens: tokens(text).into_iter(),
    };
    let mut out = Vec::new();
    while parser.keyword("fn") {
        let f = parser.function()?;
        hooked!(out.push(f));
    }
    match parser.tokens.next() {
        None => Ok(out),
        Some(t) => Err(format!("fn expected, not {t:?}")),
    }
}

/// Text that `parse` reads as the same functions.
pub fn print(program: &[Function]) -> String {
    let mut out = String::new();
    for f in program {
        let _ = write!(
            out,
            "fn {}({}) = ",
            f.name,
            hooked!(f.parameters.join(", "))
        );
        print_expr(&f.body, &mut out);
        out.push_str(";\n");
    }
    out
}

fn print_expr(e: &Expr, out: &mut String) {
    let mut all = |parts: &[&Expr], between: &[&str]| {
        out.push_str(between[0]);
        for (part, after) in parts.iter().zip(&between[1..]) {
            print_expr(part, out);
            out.push_str(after);
        }
    };
    match e {
        // The language has no negative constants.
        Expr::Number(n) if *n < 0 => all(&[], &[&hooked!(format!("(0 - {})", n.unsigned_abs()))]),
        Expr::Number(n) => all(&[], &[&hooked!(n.to_string())]),
        Expr::Name(name) => all(&[], &[name]),
        Expr::Binary(op, a, b) => all(&[a, b], &["(", &hooked!(format!(" {op} ")), ")"]),
        Expr::Let(name, value, body) => all(
            &[value, body],
            &[&hooked!(format!("(let {name} = ")), " in ", ")"],
        ),
        Expr::If(parts) => {
            let [a, b, yes, no] = &**parts;
            all(&[a, b, yes, no], &["(", " < ", " ? ", " : ", ")"]);
        }
        Expr::Call(name, arguments) => {
            out.push_str(name);
            out.push('(');
            for (i, a) in arguments.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                print_expr(a, out);
            }
            out.push(')');
        }
    }
}

/// Names to what stands for them.
type Known = HashMap<String, Expr>;

/// One pass of an optimiser: constants are folded, `let`s of small values and calls of small functions put in place. It builds
/// new trees, as compilers do.
fn rewrite(e: &Expr, known: &Known, small: &HashMap<&str, &Function>) -> Expr {
    let go = |e: &Expr| rewrite(e, known, small);
    match e {
        Expr::Number(n) => Expr::Number(*n),
        Expr::Name(name) => known
            .get(name)
            .map_or_else(|| e.clone(), |k| hooked!(k.clone())),
        Expr::Binary(op, a, b) => match (op, go(a), go(b)) {
            ('+', Expr::Number(a), Expr::Number(b)) => Expr::Number(a.wrapping_add(b)),
            ('-', Expr::Number(a), Expr::Number(b)) => Expr::Number(a.wrapping_sub(b)),
            ('*', Expr::Number(a), Expr::Number(b)) => Expr::Number(a.wrapping_mul(b)),
            ('*', Expr::Number(0), _) | ('*', _, Expr::Number(0)) => Expr::Number(0),
            ('*', Expr::Number(1), x)
            | ('+' | '-', x, Expr::Number(0))
            | ('*', x, Expr::Number(1)) => x,
            (op, a, b) => Expr::Binary(*op, boxed(a), boxed(b)),
        },
        Expr::Let(name, value, body) => {
            let value = go(value);
            let mut known = hooked!(known.clone());
            if matches!(value, Expr::Number(_) | Expr::Name(_)) {
                known.insert(name.clone(), value);
                return rewrite(body, &known, small);
            }
            known.remove(name);
            let body = rewrite(body, &known, small);
            Expr::Let(name.clone(), boxed(value), boxed(body))
        }
        Expr::If(parts) => match parts.each_ref().map(go) {
            [Expr::Number(a), Expr::Number(b), yes, no] => {
                if a < b {
                    yes
                } else {
                    no
                }
            }
            parts => Expr::If(hooked!(Box::new(parts))),
        },
        Expr::Call(name, arguments) => {
            let arguments: Vec<Expr> = hooked!(arguments.iter().map(go).collect());
            match small.get(name.as_str()) {
                Some(f) if arguments.iter().all(|a| matches!(a, Expr::Number(_))) => {
                    let known = hooked!(f.parameters.iter().cloned().zip(arguments).collect());
                    rewrite(&f.body, &known, small)
                }
                _ => Expr::Call(name.clone(), arguments),
            }
        }
    }
}

fn size(e: &Expr) -> usize {
    1 + match e {
        Expr::Number(_) | Expr::Name(_) => 0,
        Expr::Binary(_, a, b) | Expr::Let(_, a, b) => size(a) + size(b),
        Expr::If(parts) => parts.iter().map(size).sum(),
        Expr::Call(_, arguments) => arguments.iter().map(size).sum(),
    }
}

/// Passes over all functions until nothing changes, eight at most.
pub fn optimise(mut program: Vec<Function>) -> Vec<Function> {
    for _ in 0..8 {
        let small = program
            .iter()
            .filter(|f| size(&f.body) < 30)
            .map(|f| (f.name.as_str(), f))
            .collect();
        let next: Vec<Function> = program
            .iter()
            .map(|f| Function {
                name: f.name.clone(),
                parameters: hooked!(f.parameters.clone()),
                body: rewrite(&f.body, &Known::new(), &small),
            })
            .collect();
        let same = next == program;
        program = next;
        if same {
            break;
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_reads_back_the_same() {
        let program = parse(&generate(200)).unwrap();
        assert_eq!(program.len(), 200);
        let again = parse(&print(&program)).unwrap();
        assert_eq!(program, again);
    }

    #[test]
    fn rewriting_folds() {
        let text = "fn g(x) = x + 1; fn f(a, b) = let v = 2 * 3 in (v < 7 ? g(v) * a : b) + 0;";
        let out = optimise(parse(text).unwrap());
        assert_eq!(print(&out[1..]), "fn f(a, b) = (7 * a);\n");
        assert_eq!(
            print(&optimise(parse("fn h(a) = 1 - 5;").unwrap())),
            "fn h(a) = (0 - 4);\n"
        );
    }

    #[test]
    fn mistakes_are_told() {
        assert!(parse("fn f(a) = ;").unwrap_err().contains("expression"));
        assert!(parse("fn f(a) = 1").unwrap_err().contains("; expected"));
    }
}
