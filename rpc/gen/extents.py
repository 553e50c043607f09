"""How many elements lie behind a pointer of the program's, as a formula of the call's other arguments.

    rows * pitch + 1        numbers, arguments, + - * /, max(a, b), min(a, b), parentheses

Of the formula C is made that cannot overflow (rpc/base/extent.h): a number too large, a negative one and a division by 0
are more than any bound.
"""
import ast

FUNCTIONS = {ast.Add: "flyt_extent_add", ast.Sub: "flyt_extent_sub", ast.Mult: "flyt_extent_mul", ast.Div: "flyt_extent_div"}
CALLS = {"max": "flyt_extent_max", "min": "flyt_extent_min"}


class ExtentError(Exception):
    """A formula that cannot be understood; the text says what of it."""


def tree_of(text):
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        raise ExtentError(f"{text} is no formula") from None


def names(text):
    """The arguments that the formula names."""
    nodes = list(ast.walk(tree_of(text)))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    return sorted({node.id for node in nodes if isinstance(node, ast.Name) and node not in calls})


def to_c(text, value_of):
    """An expression of C; value_of(name) is the C of an argument, a number."""
    def one(node):
        if isinstance(node, ast.Name):
            return f"flyt_extent_of({value_of(node.id)})"
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return f"{node.value}ull"
        if isinstance(node, ast.BinOp) and type(node.op) in FUNCTIONS:
            return f"{FUNCTIONS[type(node.op)]}({one(node.left)}, {one(node.right)})"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS and len(node.args) == 2:
            return f"{CALLS[node.func.id]}({one(node.args[0])}, {one(node.args[1])})"
        raise ExtentError(f"{text} has more than numbers, arguments, + - * /, max(a, b) and min(a, b)")
    return one(tree_of(text))
