"""What operators see: metrics and logs. Declared once here, used everywhere above."""
