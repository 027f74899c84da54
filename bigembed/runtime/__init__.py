"""What everything stands on: blocks of rows and where functions are mapped over them, parameters, arithmetic."""
