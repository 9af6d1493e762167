# mypy: ignore-errors
# ruff: noqa: N802, B006
"""An environment in the form of CodeGym's release, with its defects: written for these tests."""

import ast
import json

import gymnasium


class ClosestEnv(gymnasium.Env):
    """Find the number of a hidden sorted list that is closest to the target."""

    def __init__(self, env_str=None):
        self.options = {}
        self.func_mapping = {
            "Observe": self.Observe, "LookUp": self.LookUp, "Mark": self.Mark, "Done": self.Done,
        }  # fmt: skip
        if env_str is not None:
            self.reset(ClosestEnv.from_env_str(env_str).options)

    @staticmethod
    def from_env_str(env_str):
        made = ClosestEnv()
        made.reset(ast.literal_eval(env_str.split("@")[1]))  # fails on true, null and "@"
        return made

    def reset(self, options):
        self.options = options
        self.numbers, self.target = options["numbers"], options["target"]
        self.marked = {}
        self._reward, self._done = 0, False
        return "ready"

    @property
    def finished(self):
        return self._done

    @property
    def reward(self):
        return self._reward

    def get_ref_answer(self):
        if self.options.get("slow"):
            while True:
                pass
        return min(self.numbers, key=lambda n: (abs(n - self.target), n))

    def step(self, action):
        call = json.loads(action)
        try:
            return True, self.func_mapping[call["name"]](**call["parameters"])
        except Exception as error:
            return False, f"Error: {error}"

    def Observe(self):
        """
        Return the length of the list and the target.
        Args:
            None
        Returns:
            str: JSON with length and target.
        Examples:
            Output: {"length": 5, "target": 8}
        """
        return json.dumps({"length": len(self.numbers), "target": self.target, "name": self.options.get("name")})

    def LookUp(self, index: int):
        """
        Return the number at an index.
        Args:
            index (int): Position, from 0.
        """
        return str(self.numbers[index])

    def Mark(self, label: str, values: list[int] = []):
        """Remember values under a label."""
        self.marked[label] = True
        self.numbers.append(0)
        self.marked[label] = [self.numbers[v] for v in values]
        self.numbers.pop()
        return json.dumps(self.marked)

    def Done(self, answer: int):
        """Submit the answer."""
        reference = self.get_ref_answer()
        self._reward = 1 if answer == reference else 0
        self._done = True
        return f"Your answer: {answer}, reference answer: {reference}"

    def solve(self):
        length = json.loads(self.step(json.dumps({"name": "Observe", "parameters": {}}))[1])["length"]
        found = [int(self.step(json.dumps({"name": "LookUp", "parameters": {"index": i}}))[1]) for i in range(length)]
        best = min(found, key=lambda n: (abs(n - self.target), n))
        return self.step(json.dumps({"name": "Done", "parameters": {"answer": best}}))[1]
