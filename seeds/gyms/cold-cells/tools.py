from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    temperatures: list[list[int]]
    limit: int
    noted: dict[str, int] = {}
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show the numbers of rows and columns, the limit and the number of rows with a note."""
        return {
            "rows": len(self.state.temperatures),
            "columns": len(self.state.temperatures[0]),
            "limit": self.state.limit,
            "noted_rows": len(self.state.noted),
        }

    @read
    def read_cell(self, row: int, column: int) -> dict:
        """Show the temperature of a cell.

        Args:
            row: The row of the cell, counted from 0 at the top.
            column: The column of the cell, counted from 0 at the left.
        """
        self._check(row, column)
        return {"row": row, "column": column, "temperature": self.state.temperatures[row][column]}

    @read
    def check_cell(self, row: int, column: int) -> str:
        """Say whether the temperature of a cell is "within" the limit (at most the limit) or "above" it.

        Args:
            row: The row of the cell, counted from 0 at the top.
            column: The column of the cell, counted from 0 at the left.
        """
        self._check(row, column)
        return "within" if self.state.temperatures[row][column] <= self.state.limit else "above"

    @read
    def compare_cells(self, row: int, column: int, other_row: int, other_column: int) -> str:
        """Say which of two cells is warmer: "first", "second" or "equal".

        Args:
            row: The row of the first cell, counted from 0 at the top.
            column: The column of the first cell, counted from 0 at the left.
            other_row: The row of the second cell, counted from 0 at the top.
            other_column: The column of the second cell, counted from 0 at the left.
        """
        self._check(row, column)
        self._check(other_row, other_column)
        one, other = self.state.temperatures[row][column], self.state.temperatures[other_row][other_column]
        return "equal" if one == other else "first" if one > other else "second"

    @write
    def note_row(self, row: int, cells: int) -> dict:
        """Write down a number of cells for a row; a number noted earlier for the row is replaced. The number is not checked.

        Args:
            row: The row, counted from 0 at the top.
            cells: The number of cells to write down, from 0 to the number of columns.
        """
        self._check(row, 0)
        columns = len(self.state.temperatures[0])
        if not 0 <= cells <= columns:
            raise ToolError(f"a row cannot have {cells} cells: allowed are 0 to {columns}")
        self.state.noted[str(row)] = cells
        return {"noted_rows": len(self.state.noted)}

    @read
    def add_notes(self) -> dict:
        """Add up the numbers that were written down for rows so far."""
        return {"noted_rows": len(self.state.noted), "total": sum(self.state.noted.values())}

    @write
    def done(self, answer: int) -> dict:
        """Submit the answer, which ends the task.

        Args:
            answer: The number of cells whose temperature is at most the limit.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}

    def _check(self, row: int, column: int) -> None:
        rows, columns = len(self.state.temperatures), len(self.state.temperatures[0])
        if not 0 <= row < rows:
            raise ToolError(f"there is no row {row}: rows are 0 to {rows - 1}")
        if not 0 <= column < columns:
            raise ToolError(f"there is no column {column}: columns are 0 to {columns - 1}")
